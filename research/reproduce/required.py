"""What is asked of models learned over noised messages, and whether the rows of a reproduction keep it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from research.reproduce.exchanges import OURS, OWN
from research.reproduce.results import Row

LEAST = (
    ("Credit", "accuracy", 1.0, 0.79),
    ("Breast", "accuracy", 1.0, 0.90),
    ("Adult", "AUC", 1.0, 0.80),
    ("Adult", "accuracy", 10.0, 0.80),
    ("Adult", "AUC", 10.0, 0.85),
)
MARGIN = 0.005
"""How far the joint model may lie below the active party's own, at any epsilon."""


@dataclass(frozen=True)
class Verdict:
    """One requirement, what was found, and whether that is enough."""

    what: str
    found: float
    least: float

    @property
    def kept(self) -> bool:
        """Whether it holds."""
        return self.found >= self.least

    @property
    def cells(self) -> tuple[str, str, str]:
        """A line of a table."""
        return self.what, f"{self.found:.4f}", f"{'PASS' if self.kept else 'FAIL'}: at least {self.least:g}"


def verdicts(rows: Sequence[Row]) -> Iterator[Verdict]:
    """Every requirement about which the rows say something."""
    found = {(row.data, row.measure, row.method, row.at): row.mean for row in rows if row.part == "HDP Fig. 1"}
    for data, measure, epsilon, least in LEAST:
        if (mean := found.get((data, measure, OURS, epsilon))) is not None:
            yield Verdict(f"{data}, {measure} at epsilon {epsilon:g}", mean, least)
    for data, measure in dict.fromkeys((data, measure) for data, measure, *_ in found):
        gains = [
            (mean - found[data, measure, OWN, epsilon], epsilon)
            for (*of, method, epsilon), mean in found.items()
            if of == [data, measure] and method == OURS
        ]
        if gains:
            worst, epsilon = min(gains)
            what = (
                f"{data}, {measure} of the joint model less the active party's own, at the worst epsilon ({epsilon:g})"
            )
            yield Verdict(what, worst, -MARGIN)
