"""Everything of the HDP-VFL paper that is measured again: Figures 1 to 4."""

from __future__ import annotations

from collections.abc import Iterator

from research.reproduce import exchanges, vertical
from research.reproduce.options import Options
from research.reproduce.results import Row, read_csv

NOTES = (
    "The paper's figures have no printed numbers. Which columns each party holds is not said either; the split here "
    "has the paper's counts and is named in docs/explanation/reproducing.md. 80 % of the people are learned "
    "from; delta is 0.01.",
    "Figure 1 here has the whole range of epsilon, which in the paper is Figure 4 of Appendix C.",
    "'as published, not proven': the passive party's slopes arrive with unbounded noise, its weights move further "
    "than the proof allows for, and the Gaussian mechanism is used beyond epsilon 1. Rows are scaled to norm 1 across "
    "both parties and centred at the means of the data, which no party could do in private. The paper prints no "
    "learning rate; here it is 0.1. docs/explanation/reproducing.md says how these were chosen.",
    "'proven': promised to everybody who takes part, about everybody else's columns, and about all messages together. "
    "Every parameter is chosen by the pre-flight from public numbers. In Figure 2 epochs and k are given.",
    "Figure 3: run times of real processes over TLS, from --peers benchmarks/results/exchange.csv. The line with "
    "homomorphic encryption is measured on a few hundred rows and scaled to all of them, as it is linear in rows.",
)


def hdp(options: Options) -> Iterator[Row]:
    """All rows, figure by figure, and run times that were measured elsewhere."""
    for split in vertical.SPLITS:
        yield from exchanges.figure_1(split, options)
    yield from exchanges.figure_2(options)
    if options.peers:
        yield from (row for row in read_csv(options.peers) if row.part == "HDP Fig. 3")
