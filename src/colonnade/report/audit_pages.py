"""The pages of audits and of attacks on a model: what is promised, and what an attacker can show."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from colonnade.audit.attacks.inversion import SHOWN, Inversion, InversionQuality, as_pictures
from colonnade.audit.attacks.membership import LabelGuesses, Membership, Promise, Rates
from colonnade.audit.registry import GameVerdict
from colonnade.drawing.canvas import Html, breakable, figure, table, tag
from colonnade.drawing.charts import Axis, Curve, LineChart, PixelChart
from colonnade.models.pictures import rates_chart
from colonnade.report import wording
from colonnade.report.page import document, write_document
from colonnade.report.wording import percent

NAME = "audit.html"
_SHEET = """
.panels { display: grid; grid-template-columns: repeat(auto-fit,minmax(290px,1fr)); gap: 22px 26px; margin-top: 14px }
.panels figure { margin: 0; min-width: 0 }
.panels figcaption { margin-top: 4px }
"""
_WIDTH = 430
_NEGLIGIBLE = 0.01  # of the highest delta: the axis ends where both curves are below


def write_audit(folder: str | Path, title: str, verdicts: Sequence[GameVerdict]) -> Path:
    """Write ``audit.html`` into a directory and return its path."""
    target = Path(folder) / NAME
    target.parent.mkdir(parents=True, exist_ok=True)
    return write_document(target, render_audit(title, verdicts))


def render_audit(title: str, verdicts: Sequence[GameVerdict]) -> str:
    """The audit as one HTML document."""
    section = audit_section("real", "What is promised, and what an attacker can show", verdicts)
    return audit_document(title, _lead(verdicts), [section])


def audit_document(title: str, lead: Html, sections: Sequence[Html]) -> str:
    """A document of sections about games, below a sentence that sums them up."""
    header = [tag("div", "Colonnade · audit", class_="brand"), tag("h1", title), lead]
    return document(f"{title}: promised and shown", header, sections, _SHEET)


def _lead(verdicts: Sequence[GameVerdict]) -> Html:
    refuted = [verdict.label for verdict in verdicts if not verdict.good]
    if refuted:
        count = wording.count_noun(len(refuted), "promise is", "promises are")
        return tag("p", f"{count} refuted: {'; '.join(refuted)}.", class_="note")
    praise = f"{wording.count_noun(len(verdicts), 'game')} played, and no attacker showed more than was promised."
    return tag("p", praise, class_="lead")


def audit_section(key: str, heading: str, verdicts: Sequence[GameVerdict]) -> Html:
    """The curves of games, and a table of their outcomes."""
    sure = wording.percent(verdicts[0].result.confidence)
    legend = tag(
        "ul",
        tag("li", tag("i", class_="b0"), "promised: the largest delta at each epsilon"),
        tag("li", tag("i", class_="b1"), f"shown: no less than this, with {sure} confidence"),
        class_="key",
    )
    panels = [_panel(f"{key}{index}", verdict) for index, verdict in enumerate(verdicts)]
    return tag(
        "section",
        tag("h2", heading),
        legend,
        tag("div", *panels, class_="panels"),
        _table(verdicts),
        aria_label=heading,
    )


def _table(verdicts: Sequence[GameVerdict]) -> Html:
    result = verdicts[0].result
    rows = [
        (
            breakable(v.label),
            v.game.story,
            wording.epsilon(v.claimed),
            f"{v.result.epsilon_lower_bound:.3f}",
            v.reach,
            tag("span", v.word, class_="good" if v.good else "warn"),
        )
        for v in verdicts
    ]
    heads = ("Game", "The two tables, and what is looked at", "Promised", "Shown", "Reach", "Verdict")
    caption = (
        f"Epsilon promised and shown at delta {wording.power(result.delta)}; reach is how much of the promised curve "
        f"was shown, and noise clearly below that share would have been seen. {result.samples[0]:,} samples of each "
        f"table, confidence {wording.percent(result.confidence)} a game."
    )
    return table(heads, rows, caption=caption, numeric=(2, 3, 4))


def _panel(key: str, verdict: GameVerdict) -> Html:
    """The two curves of one game over epsilon, as far as they can be told from zero."""
    result = verdict.result
    shown = [max(value, 0.0) for value in result.lower]
    most = max(max(result.claimed), max(shown), 1e-12)
    high = [max(pair) > _NEGLIGIBLE * most for pair in zip(result.claimed, shown, strict=True)]
    count = min(len(high), max(max((k for k, far in enumerate(high) if far), default=0) + 2, 11))
    curves = [
        Curve(label, list(zip(result.epsilons, values, strict=True))[:count], filled=not k)
        for k, (label, values) in enumerate((("promised", result.claimed), ("shown", shown)))
    ]
    chart = LineChart(
        curves,
        Axis("epsilon"),
        Axis("delta"),
        title=verdict.label,
        description=f"Promised delta {result.claimed[0]:.3g} at epsilon 0, shown at least {shown[0]:.3g}; reach "
        f"{verdict.reach}: {verdict.word}.",
    )
    caption = tag("figcaption", tag("strong", verdict.label), f": reach {verdict.reach}, {verdict.word}")
    return tag("figure", chart.draw(key, _WIDTH), caption)


Found = Inversion | Membership | LabelGuesses
_NOT_PUBLIC = "Numbers and pictures were computed from real people without noise: not for publication."
_NOT_A_PROOF = "What an attack does not find may still be there: the promise is the privacy statement's."


def write_attack(target: Path, name: str, found: Found) -> Path:
    """Write the page, so that other users of this machine cannot read it, and return its path."""
    return write_document(target, render_attack(name, found), private=True)


def render_attack(name: str, found: Found) -> str:
    """What an attack found, as one HTML document."""
    if isinstance(found, Membership):
        title, sections = "Who was a member?", _membership(found)
    elif isinstance(found, Inversion):
        title, sections = "Can columns be recovered?", _inversion(found)
    else:
        title, sections = "Whose label is which?", _labels(found)
    header = [
        tag("div", "Colonnade · attack", class_="brand"),
        tag("h1", f"{name}: {title}"),
        tag("p", summarise_attack(found), class_="lead"),
        tag("p", found.needed[:1].upper() + found.needed[1:], class_="note"),
        tag("p", f"{_NOT_PUBLIC} {_NOT_A_PROOF}", class_="note"),
    ]
    return document(f"{name}: {title}", header, sections)


# --- in words, for the terminal too


def summarise_attack(found: Found) -> str:
    """What an attack found, in a few sentences."""
    if isinstance(found, Membership):
        return _members_in_words(found)
    return _columns_in_words(found) if isinstance(found, Inversion) else _labels_in_words(found)


def _members_in_words(found: Membership) -> str:
    best = found.alike
    said = (
        f"Members are told from others with a balanced accuracy of {_within(best.accuracy, best.accuracy_interval)}, "
        f"where guessing has 50 %; with {percent(best.rare)} false alarms, {percent(best.hits, 2)} of them are found."
    )
    if found.promise is None:
        return f"{said} No bound from the privacy statement stands beside this attacker."
    return (
        f"{said} The privacy statement leaves any attack at most {percent(found.promise.accuracy)} and "
        f"{percent(float(found.promise.hits(best.rare)), 2)}."
    )


def _columns_in_words(found: Inversion) -> str:
    alike = "" if found.found.ssim is None else f", a structural similarity of {found.found.ssim:.2f}"
    blind = "" if found.blind.ssim is None else f" and {found.blind.ssim:.2f}"
    return (
        f"From the {found.what}, columns are recovered at {found.found.psnr:.1f} dB{alike}; the mean of other people "
        f"has {found.blind.psnr:.1f} dB{blind}. {percent(max(0.0, found.found.explained))} of what differs between "
        f"people is recovered, and {percent(found.found.recognised)} of {len(found.truth):,} people are recognised."
    )


def _labels_in_words(found: LabelGuesses) -> str:
    said = (
        f"{_within(found.accuracy, found.interval)} of the labels are guessed; always saying the commonest one guesses "
        f"{percent(found.base_rate)}."
    )
    if found.most is None:
        return f"{said} Labels were not protected."
    return (
        f"{said} The promise about labels leaves at most {percent(found.most)} to who knows nothing else of a person."
    )


# --- sections


def _membership(found: Membership) -> Sequence[Html]:
    drawn: list[tuple[str, Rates]] = [(f"{found.shadows} models fitted alike", found.alike)]
    if found.one is not None:
        drawn.insert(0, ("this model", found.one))
    lines = [Curve(f"{name}, AUC {rates.auc:.3f}", rates.roc) for name, rates in drawn]
    if found.promise is not None:
        lines.append(Curve("the most that the statement leaves", _most(found.promise)))
    axes = ("others taken for members", "members found")
    whole = figure("roc", rates_chart(lines, *axes, title="Members found"))
    note = "The same curves on logarithmic scales: an attack that is sure of a few people shows here."
    rare = figure("rare", rates_chart(lines, *axes, title="Few false alarms", note=note, low=1e-3))
    rows = [_row(name, rates) for name, rates in drawn]
    if found.promise is not None:
        promise = found.promise
        rows.append(("At most", "–", percent(promise.accuracy), percent(float(promise.hits(found.alike.rare)), 2), "–"))
    heads = ("Attack on", "AUC", "Balanced accuracy", f"Found at {percent(found.alike.rare)} false alarms", "People")
    caption = (
        "Intervals hold 95 % of the time over people, each counted as drawn anew. One model is one draw of the noise; "
        "the models fitted alike are attacked in turn, each by the others."
    )
    return [
        tag("section", tag("h2", "Rates"), whole, rare),
        tag("section", tag("h2", "In numbers"), table(heads, rows, caption=caption, numeric=(1, 2, 3, 4))),
    ]


def _row(name: str, rates: Rates) -> tuple[str, ...]:
    return (
        name[:1].upper() + name[1:],
        f"{rates.auc:.3f} ({rates.auc_interval[0]:.3f} to {rates.auc_interval[1]:.3f})",
        _within(rates.accuracy, rates.accuracy_interval),
        _within(rates.hits, rates.hits_interval, 2),
        f"{rates.members:,} and {rates.others:,}",
    )


def _most(promise: Promise) -> list[tuple[float, float]]:
    alarms = np.concatenate([[0.0], np.geomspace(1e-5, 1, 200)])
    return list(zip(alarms.tolist(), promise.hits(alarms).tolist(), strict=True))


def _inversion(found: Inversion) -> Sequence[Html]:
    sections = []
    if found.shape:
        shown = slice(0, SHOWN)
        low, high = float(found.truth.min()), float(found.truth.max())
        stacks = [
            (name, as_pictures(rows[shown], found.shape))
            for name, rows in (("true", found.truth), ("recovered", found.guesses))
        ]
        drawn = figure(
            "pictures",
            PixelChart(stacks, low, high, title="True and recovered pictures", description=summarise_attack(found)),
            f"The first {min(SHOWN, len(found.truth))} of {len(found.truth):,} people, whatever came of them.",
        )
        sections.append(tag("section", tag("h2", "Pictures"), drawn))
    rows = [_quality(found.what, found.found), _quality("nothing: the mean of others", found.blind)]
    heads = ("Seen", "PSNR", "SSIM", "Variance explained", "Recognised")
    caption = (
        "Means over people. Recognised: the guess is nearer to the person's own columns than to those of any other "
        f"person attacked; by luck it is {percent(1 / len(found.truth), 2)}."
    )
    return [
        *sections,
        tag("section", tag("h2", "In numbers"), table(heads, rows, caption=caption, numeric=(1, 2, 3, 4))),
    ]


def _quality(name: str, each: InversionQuality) -> tuple[str, ...]:
    return (
        name[:1].upper() + name[1:],
        f"{each.psnr:.1f} dB",
        "–" if each.ssim is None else f"{each.ssim:.3f}",
        percent(each.explained),
        percent(each.recognised),
    )


def _labels(found: LabelGuesses) -> Sequence[Html]:
    rows = [(f"By groups of {'told labels' if found.labels_told else 'directions'}", percent(found.clusters))]
    if found.learned is not None:
        rows.append(("By learning from the known people", percent(found.learned)))
    rows.append(("Always the commonest label", percent(found.base_rate)))
    if found.most is not None:
        rows.append(("At most, by the promise, without knowing more of a person", percent(found.most)))
    caption = f"Share of the labels of {found.people:,} people; those of {found.known:,} others were known."
    return [
        tag("section", tag("h2", "In numbers"), table(("Guess", "Right"), rows, caption=caption, numeric=(1,))),
    ]


def _within(value: float, interval: tuple[float, float], digits: int = 1) -> str:
    low, high = (percent(math.floor(interval[0] * 1e6) / 1e6, digits), percent(interval[1], digits))
    return f"{percent(value, digits)} ({low} to {high})"
