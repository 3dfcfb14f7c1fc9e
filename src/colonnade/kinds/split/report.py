"""A split model: who learned the head from what, how wide and how noisy embeddings were, and who keeps what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from colonnade.drawing.canvas import Html, join, named_values, table, tag
from colonnade.privacy.observers import COORDINATOR, Trust
from colonnade.report import wording
from colonnade.report.sections import ReportSection, Run, counts, seen_on_shares
from colonnade.report.wording import count_noun, mapping, number

if TYPE_CHECKING:
    from colonnade.kinds.split.model import SplitModel
    from colonnade.kinds.split.scores import SplitScores

_LEARNED_BY = {
    "committee": "by a committee, from one noisy release of second moments: no embedding left anybody",
    "embeddings": "from embeddings with noise, which every other party told",
    "published": "from embeddings as published: for this nothing is proven",
}
_HEADS = ("Who", "Own columns", "Columns of others", "Received", "Noise", "Number of rows", "Encoder", "Head")


def title(model: SplitModel, columns: int) -> str:
    """What was computed, in a few words."""
    what = "classifier" if model.kind == "split-classifier" else "regression"
    on = f" on {count_noun(columns, 'column')}" if columns else ""
    return f"one split {what} of {model.label}{on}"


def result(model: SplitModel, run: Run, owners: Sequence[str]) -> Html:
    """What was learned, by which way, and the embeddings of each party."""
    return join(tag("h2", "The result"), _lead(model), _guarantee(model), _facts(model), _parties(model, owners))


def _lead(model: SplitModel) -> Html:
    rows = number(model.plan_.get("rows"))
    about = "about " if model.head_ == "committee" else ""  # where it is no noisy count it is in the study
    people = f"From {about}{rows:,.0f} people, a" if rows else "A"
    active = str(model.plan_.get("active"))
    has = "everybody has it" if model.head_ == "committee" else f"{active} alone has it"
    return tag(
        "p",
        f"{people} head over embeddings that predicts {model.label_}, learned {_LEARNED_BY[model.head_]}; {has}. Each "
        "party keeps its encoder, in its kept.npz and nowhere else: this report holds none of them.",
    )


def _guarantee(model: SplitModel) -> Html | None:
    """The one line that says what an unproven way promises: nothing."""
    said = model.plan_.get("guarantee")
    if not isinstance(said, str):
        return None
    parts: list[object] = [tag("strong", said[:1].upper() + said[1:] + ".")]
    if frozen := number(model.plan_.get("frozen_epsilon")):
        figure = wording.epsilon(frozen)
        parts.append(
            f" Had encoders been frozen and nothing rescaled, all releases together would be epsilon {figure}; "
        )
        parts.append("for what was done it is no promise.")
    return tag("p", *parts, class_="warn")


def _facts(model: SplitModel) -> Html | None:
    plan = model.plan_
    trained, release = plan.get("training"), _plain(model.get_params().get("per_release"))
    found = [
        ("Head", model.head_),
        ("Solver", plan.get("solver")),
        ("Label at", plan.get("active")),
        ("Classes", _plain(plan.get("classes")) if plan.get("classes") else None),
        ("Training of encoders", trained if trained not in (None, "none") else None),
        ("Variant", _variant(plan) if model.head_ == "published" else None),
        ("Epochs", _plain(plan.get("epochs")) if plan.get("epochs") else None),
        ("Epsilon of one release", f"{release}, as the paper counts it" if release else None),
        ("Labels", _labels(model, plan)),
        ("Noise of an opened moment", f"{model.noise_std_:,.4g}" if model.head_ == "committee" else None),
    ]
    return named_values(found)


def _variant(plan: Mapping[str, object]) -> str:
    """Which of the published algorithms it was."""
    if _unprotected(plan):
        return "unprotected"
    parts = [name for key, name in (("rescale", "rescaling"), ("adjust", "adjusting")) if plan.get(key)]
    return wording.join_names(parts) or "vanilla"


def _unprotected(plan: Mapping[str, object]) -> bool:
    """Whether embeddings were told as they are: nothing clipped, no noise."""
    return bool(plan.get("guarantee")) and (plan.get("noise") in ("0", 0) or plan.get("protected") is False)


def _labels(model: SplitModel, plan: Mapping[str, object]) -> str | None:
    """How labels were told, with their epsilon if they have one."""
    told, asked = plan.get("labels"), number(model.get_params().get("label_epsilon"))
    if not isinstance(told, str):
        return None
    return f"{told}, epsilon {asked:g}" if asked is not None and told == "randomised response" else told


def _parties(model: SplitModel, owners: Sequence[str]) -> Html:
    widths, clips = mapping(model.plan_.get("widths")), mapping(model.plan_.get("clips"))
    noise, committee = mapping(model.plan_.get("deviations")), model.head_ == "committee"
    rows = []
    for name in owners:
        kind = model.encoder_kind(name)
        told = "shares alone" if committee else _deviation(noise.get(name))
        width = _plain(widths.get(name)) or "–"
        clip = _longest(_plain(clips.get(name)), model)
        rows.append((name, kind or "none: it has nothing but the label", width if kind else "–", clip, told))
    length = "Length" if committee else "Clipped"
    heads = ("Party", "Encoder", "Numbers of an embedding", length, "Left the party as" if committee else "Noise")
    caption = (
        "Embeddings were scaled to one public length before they were shared."
        if committee
        else "Noise is the standard deviation on each number of an embedding as it was told."
    )
    return join(tag("h3", "The parties"), table(heads, rows, caption=caption, numeric=(2, 3) if committee else (2,)))


def _longest(clip: str | None, model: SplitModel) -> str:
    """The longest embedding; as published, one that is rescaled may be stretched beyond it."""
    if clip is None or model.head_ == "committee":
        return clip or "–"
    if _unprotected(model.plan_):
        return "not clipped"
    return f"to {clip}, then stretched" if model.plan_.get("rescale") else f"to {clip}"


def _deviation(value: object) -> str:
    found = number(value)
    return "not told" if found is None else f"{found:,.4g}" if found else "none"


def who_saw_what(model: SplitModel, run: Run, trust: Trust) -> Html:
    """What each role saw: on shares nothing but the result, else embeddings with noise at the party with the label."""
    if trust.committee:
        return seen_on_shares(model, run, trust)
    plan = model.plan_ if model.fitted else mapping(run.get("task"))
    active = str(plan.get("active") or plan.get("to") or "")
    others = wording.join_names([name for name in trust.owners if name != active])
    noisy = "embeddings" if plan.get("guarantee") else "noisy embeddings"
    back, noise = _returned_to(model, plan, active), "none" if _unprotected(plan) else "its own"
    rows: list[tuple[object, ...]] = []
    for name in trust.owners:
        holds = name == active
        who = join(name, tag("span", "holds the label", class_="why") if holds else None)
        told = f"{noisy} of {others}" if holds else back
        rows.append(
            (who, "its own", "never", told, "none" if holds else noise, "public", "its own", "yes" if holds else "no")
        )
    relays = join(COORDINATOR, tag("span", "relays", class_="why"))
    reads = join("analyst", tag("span", "reads the result and nothing else", class_="why"))
    rows += [(who, "has none", "never", "nothing", "none", "public", "none", "no") for who in (relays, reads)]
    caption = "What each role held or saw during the run, while not all parties pool it."
    return join(tag("h2", "Who saw what"), table(_HEADS, rows, caption=caption))


def _returned_to(model: SplitModel, plan: Mapping[str, object], active: str) -> str:
    """What comes back to a party that tells embeddings."""
    if plan.get("guarantee"):
        return f"slopes of {active}"
    labels = _labels(model, plan) or "not told"
    if labels == "not told":
        return "nothing"
    slopes = ", and slopes made of told numbers" if plan.get("training") == "rounds" else ""
    return f"labels of {active}, {labels}{slopes}"


def _plain(value: object) -> str | None:
    found = number(value)
    return None if found is None else f"{found:,.4g}"


SECTION: ReportSection[SplitModel] = ReportSection(
    title, result, columns=lambda model: len(model.feature_names_in_), seen=who_saw_what
)
SCORES: ReportSection[SplitScores] = ReportSection(
    title=lambda model, columns: f"predictions for {model.recipient} by encoders that each party keeps",
    result=counts,
    columns=lambda model: 0,
)
