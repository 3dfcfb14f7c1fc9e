"""What a synthetic table is worth, for those who may look at the real one: :func:`evaluate_synthetic`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from colonnade.errors import DataError
from colonnade.kinds.synthesis.attack import FEWEST_PEOPLE, Attack, Closeness, attacks, closeness
from colonnade.kinds.synthesis.comparable import Comparable, Side, comparable
from colonnade.kinds.synthesis.distances import Associations, Distance, associations, distance, shares
from colonnade.kinds.synthesis.usefulness import Usefulness, usefulness

_WORDS = {1: "one column", 2: "two columns", 3: "three columns"}


@dataclass(frozen=True)
class ColumnShares:
    """One column: a text for each of its codes, and the share of people with it in both tables."""

    name: str
    labels: tuple[str, ...]
    real: tuple[float, ...]
    synthetic: tuple[float, ...]


@dataclass(frozen=True)
class SyntheticQuality:
    """What :func:`evaluate_synthetic` found; it holds numbers about real people and is not private."""

    rows: int
    synthetic_rows: int
    held_out_rows: int | None
    label: str | None
    distances: tuple[Distance, ...]
    associations: Associations
    columns: tuple[ColumnShares, ...]
    usefulness: tuple[Usefulness, ...] = ()
    closeness: Closeness | None = None
    attacks: tuple[Attack, ...] = ()
    sdmetrics: float | None = None
    """The overall score of SDMetrics' quality report, if it was asked for."""

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values, for JSON."""
        return {
            **{key: _plain(value) for key, value in vars(self).items() if key != "associations"},
            "associations": {
                "names": list(self.associations.names),
                "real": np.round(self.associations.real, 6).tolist(),
                "synthetic": np.round(self.associations.synthetic, 6).tolist(),
                "mean_difference": self.associations.mean_difference,
                "worst_difference": self.associations.worst_difference,
            },
        }

    def __str__(self) -> str:
        aside = "" if self.held_out_rows is None else f", {self.held_out_rows:,} held out"
        lines = [f"{self.synthetic_rows:,} made-up people beside {self.rows:,} real ones{aside}"]
        lines += ["", "share of people who would have to change (total variation)"]
        lines += [_distance(each) for each in self.distances]
        found = self.associations
        lines.append(
            f"  associations of pairs differ by {found.mean_difference:.3f}, at most {found.worst_difference:.3f}"
        )
        if self.usefulness:
            lines += ["", f"{self.label!r} predicted for people held out, after training on"]
            lines += [_scores(each) for each in self.usefulness]
        if self.closeness is not None:
            lines += ["", *_close(self.closeness)]
        lines += [_attacked(each) for each in self.attacks]
        if self.sdmetrics is not None:
            lines += ["", f"SDMetrics' quality score: {self.sdmetrics:.3f}"]
        return "\n".join(lines)


def evaluate_synthetic(
    real: Any,
    synthetic: Any,
    *,
    held_out: Any = None,
    label: str | None = None,
    sdmetrics: bool = False,
) -> SyntheticQuality:
    """Compare a synthetic table with the real one, which the caller must be allowed to look at.

    Tables are those of Arrow, or data frames, with the same columns. ``held_out`` are other real people, whom the
    synthesis did not learn from: with them it is tested whether models of ``label`` that are trained on made-up people
    are good for real ones, and whether the table gives away whom it was learned from. The result is not private: it is
    for those who hold the data, not for publication. ``sdmetrics`` adds the score of that library.
    """
    extra = [] if held_out is None else [held_out]
    common, sides = comparable(real, synthetic, *extra)
    people, made_up = sides[:2]
    aside = sides[2] if extra else None
    place = None if label is None else common.place(label)
    several = [order for order in (1, 2, 3) if order <= len(common.names)]
    distances = [distance(common, people, made_up, order, held_out=aside) for order in several]
    if place is not None:
        distances += [
            distance(common, people, made_up, order, label=place, held_out=aside) for order in several if order > 1
        ]
    attacked = aside is not None and len(aside) >= 3 * FEWEST_PEOPLE and len(people) >= FEWEST_PEOPLE
    return SyntheticQuality(
        len(people),
        len(made_up),
        None if aside is None else len(aside),
        label,
        tuple(distances),
        associations(common, people, made_up),
        _columns(common, people, made_up),
        () if place is None or aside is None else usefulness(common, people, made_up, aside, place),
        None if aside is None else closeness(common, people, made_up, aside),
        attacks(common, people, made_up, aside) if attacked and aside is not None else (),
        _sdmetrics(common, people, made_up) if sdmetrics else None,
    )


def _columns(common: Comparable, real: Side, synthetic: Side) -> tuple[ColumnShares, ...]:
    return tuple(
        ColumnShares(
            name,
            common.labels[place],
            *(tuple(shares(side.codes, (place,), common.sizes).tolist()) for side in (real, synthetic)),
        )
        for place, name in enumerate(common.names)
    )


def _sdmetrics(common: Comparable, real: Side, synthetic: Side) -> float:
    try:
        import pandas
        from sdmetrics.reports import QualityReport
    except ImportError:
        raise DataError(
            "the score of SDMetrics needs its package; install it with pip install 'colonnade[quality]' [DA102]"
        ) from None
    frames = [
        pandas.DataFrame(
            {
                name: side.values[:, place]
                if common.numeric[place]
                else np.array(common.labels[place], dtype=object)[side.codes[:, place]]
                for place, name in enumerate(common.names)
            }
        )
        for side in (real, synthetic)
    ]
    kinds = {
        name: {"sdtype": "numerical" if numeric else "categorical"}
        for name, numeric in zip(common.names, common.numeric, strict=True)
    }
    report = QualityReport()
    report.generate(*({"people": frame} for frame in frames), {"tables": {"people": {"columns": kinds}}}, verbose=False)
    return float(report.get_score())


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return asdict(value) if hasattr(value, "__dataclass_fields__") else value


def _distance(found: Distance) -> str:
    which = _WORDS[found.order] + (" with the label" if found.with_label else "")
    aside = "" if found.held_out is None else f"; people held out: {found.held_out:.3f}"
    worst = " x ".join(found.worst_set)
    return f"  {which}: {found.mean:.3f} on average, {found.worst:.3f} at worst ({worst}){aside}"


def _scores(found: Usefulness) -> str:
    told = [
        f"{name} {found.synthetic[name]:.3f} on made-up people, {found.real[name]:.3f} on real ones"
        for name in found.synthetic
    ]
    return f"  {found.model}: " + "; ".join(told)


def _close(found: Closeness) -> list[str]:
    low, high = found.interval
    return [
        "does the table give away whom it was learned from?",
        f"  {found.closer_to_real:.3f} of made-up people are closer to those learned from than to those held out "
        f"({low:.3f} to {high:.3f}; 0.5 if nothing was copied)",
    ]


def _attacked(found: Attack) -> str:
    low, high = found.auc_interval
    return (
        f"  attack by {found.name}: AUC {found.auc:.3f} ({low:.3f} to {high:.3f}; baseline {found.baseline:.3f}), "
        f"advantage {found.advantage:.3f} (at most {found.advantage_interval[1]:.3f})"
    )
