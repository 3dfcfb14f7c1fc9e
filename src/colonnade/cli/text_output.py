"""Results as text for a person."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from colonnade.errors import ColonnadeError
from colonnade.models import Estimator
from colonnade.models.alignment import leakage_table
from colonnade.models.planner import SampleSizeForecast
from colonnade.privacy.calibrate import BindingBudget
from colonnade.privacy.noise_laws import DEFAULT_LAW
from colonnade.privacy.statement import Statement, format_rounded_up
from colonnade.protocols.align import AlignmentTask
from colonnade.report.privacy import people
from colonnade.sanitize import sanitize, sanitize_lines
from colonnade.study import PartyConfig, Preflight, Study
from colonnade.study.doctor import missing_labels
from colonnade.study.local import folder_of
from colonnade.study.preflight import AlignmentEstimate, RunEstimate, SecuritySummary, outlook
from colonnade.tables import EncodingReport
from colonnade.tables.keys import Key


def size(count: float) -> str:
    """A number of bytes as text, in a suitable unit."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError


def preflight(answer: Preflight) -> str:
    """What a study would cost."""
    lines = [
        f"study {answer.study!r}, digest {answer.digest}",
        *([sanitize(f"method: {answer.details.method}")] if answer.details.method else []),
        "",
        str(answer.statement),
        "",
        binding(answer.binding)
        if answer.binding
        else "the study states no budget for observers: the task sets its price",
    ]
    if answer.deviating is not None:
        lines += security(answer.deviating)
    brief = [sanitize(line) for line in answer.details.brief]
    lines += (
        brief if answer.run is None else _run(answer.run, brief, (*_lanes(answer), *(_DIRECT if answer.direct else ())))
    )
    if answer.details.section:
        lines += ["", *map(sanitize, answer.details.section)]
    if answer.alignment is not None:
        lines += ["", *_alignment(answer.alignment)]
    return "\n".join(lines)


def _lanes(answer: Preflight) -> tuple[str, ...]:
    if answer.partitions == 1:
        return ()
    return (
        f"lanes: people are added up in {answer.partitions} partitions, by workers of everybody; figures are those of",
        "  a run in one part",
    )


def security(found: SecuritySummary) -> list[str]:
    """What is done about participants that deviate, in lines."""
    lines = textwrap.wrap(found.sentence, 108, subsequent_indent="  ")
    if found.may_be_lost is not None:
        lines.append(f"seats that may be lost once they have dealt everything: {found.may_be_lost}")
    return lines


def about(study: Study) -> str:
    """What the study is for, in the words of who wrote it; empty where nobody said."""
    return sanitize(study.content.description.strip())


def wrong_pins(study: Study) -> str:
    """Why a run would refuse the pins that the study has; empty where they are right, or there are none yet."""
    if not study.content.pins:
        return ""
    try:
        study.certificates()
    except ColonnadeError as error:
        return f"A RUN WOULD STOP: {sanitize(str(error))}"
    return ""


def forecast(found: SampleSizeForecast | None, study: Study) -> str:
    """Whether there are enough people, and what would do; empty where there is no such figure."""
    if found is None:
        return ""
    lines = [found.forecast] + ([] if found.warning is None else [found.warning])
    align, least = study.content.align, found.people or 0
    counted = align is not None and not align.hidden and study.task.rows_stated is None
    spent = study.content.lanes is not None  # then nobody knows how many match before everything is
    if counted and not spent and align is not None and align.at_least < least:
        lines.append(f"to spend nothing where fewer match, set at_least = {least} in [align]")
    return "\n".join(lines)


def own_forecast(study: Study, configs: Sequence[PartyConfig]) -> str:
    """The labels that are missing, and the forecast for as many people as match at most; for their own eyes."""
    lost = [f"{own.name}'s {said}" for own in configs if (said := missing_labels(study, own))]
    return "\n".join(filter(None, [*lost, _own_forecast(study, configs)]))


def _own_forecast(study: Study, configs: Sequence[PartyConfig]) -> str:
    known = [rows for own in configs if (rows := own.count_rows(study.roster.schemas[own.name])) is not None]
    found = outlook(study)
    if found is None or not known or (found.rows is not None and found.rows <= min(known)):
        return forecast(found, study)
    whose = f"{configs[0].name}'s table" if len(configs) == 1 else "the shortest table"
    least = f"at most {min(known):,} people can match, as many as {whose} has rows"
    return f"{least}\n{forecast(outlook(study, min(known)), study)}"


def forecast_of(run: Mapping[str, Any]) -> str:
    """A warning after a run about too few people; empty where there were enough, or nobody can say."""
    found = run.get("forecast")
    if not found or not found["too_few"]:
        return ""
    known = SampleSizeForecast(*(found[key] for key in ("of", "enough", "rows", "error", "people")))
    return f"{known.forecast}\n{known.warning}"


def approval_text(name: str, answer: Preflight) -> str:
    """What a party reads before it approves a study: the cost, and who learns what from the alignment."""
    matched = [] if answer.alignment is None else [*_alignment(answer.alignment), ""]
    promised = [*map(sanitize, answer.details.section), ""] if answer.details.section else []
    head = f"{name} in {answer.study!r}: this is what it costs"
    return "\n".join([head, str(answer.statement), "", *promised, *matched])


CURVE = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0)


def curves(statement: Statement) -> dict[str, dict[str, float]]:
    """Delta at some epsilons, for each observer with a finite epsilon."""
    protected = [row.observer for row in statement.rows if not math.isinf(row.epsilon)]
    found = {observer.label: statement.profile(observer, CURVE) for observer in protected}
    labels = [f"{epsilon:g}" for epsilon in CURVE]
    return {who: dict(zip(labels, deltas, strict=True)) for who, deltas in found.items()}


def curve_table(found: Mapping[str, Mapping[str, float]]) -> str:
    """These deltas as a text table; delta is rounded up."""
    width = max([len(who) for who in found] + [len("delta at epsilon")])
    lines = ["delta at epsilon".ljust(width) + "".join(f"{epsilon:>10g}" for epsilon in CURVE)]
    for who, deltas in found.items():
        lines.append(who.ljust(width) + "".join(f"{_up(delta):>10}" for delta in deltas.values()))
    return "\n".join(lines)


def _up(delta: float) -> str:
    """The number rounded up to two digits."""
    if not 0 < delta < 1:
        return f"{delta:g}"
    place = math.floor(math.log10(delta)) - 1
    return f"{math.ceil(delta / 10.0**place * (1 - 1e-12)) * 10.0**place:.1e}"


def binding(found: BindingBudget) -> str:
    """A sentence: whose budget decides, and whether it is kept."""
    learned = f"epsilon {format_rounded_up(found.bound.epsilon)} of {found.budget.epsilon:g} allowed"
    if found.is_kept:
        limit = f"; {found.certification_limit}" if found.certification_limit else ""
        return f"the budget for {found.observer} decides: {learned}{limit}"
    return f"OVER BUDGET: {found.observer} would learn {learned}"


_DIRECT = (
    "links: participants connect to each other where they can, and the coordinator relays the rest; they see each",
    "  other's addresses, and the time above is that of a run in which everything is relayed",
)


def _run(answer: RunEstimate, brief: Sequence[str], links: Sequence[str] = ()) -> list[str]:
    lines = [
        f"for {answer.rows:,} rows of {answer.columns} encoded columns: about {answer.seconds:.1f} s, "
        f"{size(answer.bytes_total)} on the wire, {answer.rounds} rounds",
        f"values need {answer.value_bits} bits, {_primes_text(answer)}; {_noise(answer)}",
        *links,
        *brief,
        "",
    ]
    width = max(len(load.participant) for load in answer.loads)
    for load in answer.loads:
        lines.append(
            f"  {load.participant:<{width}}  sends {size(load.bytes_sent):>9}  needs {size(load.memory):>9} of memory"
        )
    return lines


def _primes_text(answer: RunEstimate) -> str:
    if not answer.primes:
        return "which 64-bit integers hold"
    return f"{answer.primes} primes hold {answer.system_bits}"


_DUPLICATES = {
    "refuse": "a party with equal keys in two rows stops the study",
    "drop": "no row stays whose key occurs twice at a party",
}
_POOLED = "the coordinator and any one owner who pool what they see can try out every key on every list"


def _alignment(found: AlignmentEstimate) -> list[str]:
    """Lines about the alignment: how people are matched, who learns what, and what it costs."""
    task = found.task
    lists = f"lists {'of' if task.pad_to is None else 'padded to'} {found.rows:,}"
    again = "; next to nothing where an earlier alignment is used again" if found.reuse else ""
    lines = [
        f"ALIGNMENT, mode {task.mode}: first the parties {_matching_text(task)}",
        *(sanitize(f"  {key.name}, {rules(key)}") for key in task.keys),
        f"{_DUPLICATES[task.duplicates]}; {_few(task)}",
        f"for {lists}: {_about(found.seconds)} and {size(found.bytes_total)} on the wire{again}",
        _other_mode(found),
        "",
    ]
    return [*lines, *leakage_table(task.leakage)]


def rules(key: Key) -> str:
    """In words, how the cells of one key are written before they are compared."""
    if key.kind == "number":
        return "as a number: 7, 007 and 7.0 are equal"
    if key.kind == "date":
        return "as a date, yyyy-mm-dd"
    words = {
        "case": {"keep": "", "fold": "capitals as small letters"},
        "blanks": {
            "keep": "blanks as they stand",
            "trim": "without blanks at the ends",
            "collapse": "without blanks at the ends, single ones between words",
            "remove": "without blanks",
        },
        "accents": {"keep": "", "strip": "without accents"},
        "unicode": {"keep": "Unicode as it stands", "NFC": "Unicode NFC", "NFKC": "Unicode NFKC"},
    }
    said = [choice[getattr(key, rule)] for rule, choice in words.items()]
    return f"as text: {', '.join(text for text in said if text)}"


def _matching_text(found: AlignmentTask) -> str:
    """What the parties do in this mode, in words."""
    if found.mode == "fuzzy":
        return f"pair the people whose keys are similar, {found.similarity:g} of 1 or more"
    return f"find the people that all of them hold{', and nobody learns who they are' if found.hidden else ''}"


def _other_mode(found: AlignmentEstimate) -> str:
    """A sentence about another mode: how long it takes, and what it promises."""
    if found.instead is None:
        read = "the coordinator compares Bloom filters, from which attackers have read names"
        return f"weaker than the exact modes: {read}, and {_POOLED}"
    mode, seconds = found.instead
    if mode == "dh":
        ratio = _times(seconds / found.seconds)
        return f"here {_POOLED}; in mode dh they cannot, and it would take {_about(seconds)} ({ratio} as long)"
    ratio = _times(found.seconds / seconds)
    return f"mode {mode} would take {_about(seconds)} ({ratio} faster), but there {_POOLED}"


def _about(seconds: float) -> str:
    return f"about {seconds:,.1f} s" if seconds >= 0.1 else "less than 0.1 s"


def _times(ratio: float) -> str:
    return f"{ratio:,.0f} times" if ratio >= 10 else f"{ratio:.1f} times"


def _few(found: AlignmentTask) -> str:
    """What happens if too few people match."""
    if found.hidden:
        return "nobody is told whether anybody matched"
    few = "if nobody is common" if found.at_least == 1 else f"if fewer than {found.at_least:,} are common"
    if found.partitions > 1:
        return f"{few} the study ends after the last lane, with nothing opened, and stays spent"
    return f"{few} the study ends, and nothing is spent"


def _noise(answer: RunEstimate) -> str:
    if not answer.noise_std:
        return "no noise: the answers are exact"
    law = "" if answer.law == DEFAULT_LAW else f"{answer.law} "
    return f"{law}noise of deviation {answer.noise_std:.4g} on {answer.noise_on}"


def outcome(study: Study, folder: Path, run: Mapping[str, Any]) -> str:
    """The result of a run as text."""
    model = Estimator.load(folder / "model.json")
    warned = [forecast_of(run)] if forecast_of(run) else []
    told = [*common(study, run), *lost_parties(run), *summary(model), *warned]
    own = [f"report of {name} alone: {path}" for name, path in _own_reports(study, folder).items()]
    return "\n".join([str(study.statement), "", *told, "", *own, f"report: {folder / 'report.html'}"])


def _own_reports(study: Study, folder: Path) -> dict[str, Path]:
    """The parties' own reports, where their folders lie in that of the coordinator."""
    found = {name: folder_of(folder, name) / "report.html" for name in study.content.parties}
    return {name: path for name, path in found.items() if path.exists()}


def summary(model: Estimator) -> list[str]:
    """What a model has learned; names of columns and categories are those that a schema gives."""
    return [sanitize(line) for line in model.summary()]


def common(study: Study, run: Mapping[str, Any]) -> list[str]:
    """A line with the number of people that an alignment found, if the record holds it."""
    if (found := run.get("alignment")) is None:
        return []
    count, everybody = people(run), ", ".join(study.content.parties)
    again = "; an earlier alignment was used again" if found["reused"] else ""
    if found["hidden"]:
        return [f"no party learns who is common to {everybody}, nor how many are{again}"]
    if count is None:  # if an alignment is used again, the coordinator does not learn the number
        return [f"an earlier alignment of {everybody} was used again"]
    return [f"{count:,} {'person is' if count == 1 else 'people are'} common to {everybody}{again}"]


def lost_parties(run: Mapping[str, Any]) -> list[str]:
    """A line that names the parties that were lost, if there are any."""
    return [f"went on without {', '.join(names)}"] if (names := run.get("lost")) else []


def misfits(run: Mapping[str, Any]) -> list[str]:
    """Lines for the party itself: the columns with cells that its schema has no place for, if there are any."""
    return EncodingReport(misfits=run.get("misfits", {})).misfit_lines()


def identity(made: Mapping[str, Any]) -> str:
    """The files that were made for a participant, as text, and what to do with them."""
    kept = made["kept"]
    stays = "it was there, and stays" if "key" in kept else "keep it here"
    lines = [f"{made['name']}: private key {made['key']} ({stays})"]
    if "config" in made:
        lines.append(f"configuration {made['config']} (review it)")
    lines.append(f"certificate {made['certificate']} (send it to the coordinator)")
    lines.append(f"fingerprint {made['fingerprint']} (compare it over the telephone)")
    lines.append(
        "next: put everyone's certificates into certs/ beside the study file, and `colonnade init pins STUDY.toml`"
    )
    return "\n".join(lines)


def pins(study: Path, found: Mapping[str, str]) -> str:
    """The pins as text."""
    return "\n".join([f"pinned in {study}:", *(f"  {name}  {pin}" for name, pin in found.items())])


def trial(made: Mapping[str, Any]) -> str:
    """What was written for a first study, what must be reviewed before a real one, and the next commands."""
    about = f" of {made['label']}" if made["label"] else ""
    lines = [f"wrote {made['study']}: {made['kind']}{about}, epsilon {made['epsilon']:g} against everyone"]
    width = max(len(name) for name in made["parties"])
    for name, each in made["parties"].items():
        lines.append(f"  {name:<{width}}  {each['columns']} columns of {each['file']}, schema {each['schema']}")
        lines += [f"  {'':<{width}}  left out: {column}" for column in each["left_out"]]
        if each["labels_missing"]:
            lines.append(
                f"  {'':<{width}}  {each['labels_missing']:,} labels are missing: whoever has none is left out"
            )
    lines += made["enough"]
    lines += [
        "THIS IS A TRIAL: bounds in the schemas were taken from the data, all keys are on this machine, and each party",
        "says yes by itself. For a real study replace every bound marked `drafted`, and review every party.toml.",
        f"next: colonnade privacy {made['study']}    (what it would cost)",
        f"then: colonnade run {made['study']}",
    ]
    return sanitize_lines("\n".join(lines))


def plain(report: Any) -> Any:
    """A dataclass as JSON values."""
    return json.loads(json.dumps(asdict(report), default=dict))
