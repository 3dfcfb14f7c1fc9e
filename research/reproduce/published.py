"""The numbers that the papers print, copied by hand; figures without printed numbers have none here."""

from __future__ import annotations

from collections.abc import Iterator

from research.reproduce.results import PUBLISHED, Group, Row

EPSILONS = (0.1, 1.0, 10.0)
SPARSITIES = (0.1, 0.5, 1.0)
RUNS = 10

# (method, one (mean, deviation) for each epsilon, or one for all)
_Line = tuple[str, tuple[tuple[float, float], ...]]

TABLE_1: dict[str, tuple[_Line, ...]] = {
    "US census": (
        ("non-private", ((0.0044, 0.0132),)),
        ("DPFW, trusted curator", ((0.0912, 0.0007), (0.0905, 0.0008), (0.0903, 0.0008))),
        ("DPFW, two parties", ((0.1286, 0.0154), (0.1334, 0.0235), (0.1329, 0.0204))),
        ("functional mechanism", ((0.0101, 0.0305), (0.0087, 0.0261), (0.0086, 0.0259))),
    ),
    "Brazil census": (
        ("non-private", ((0.0044, 0.0132),)),
        ("DPFW, trusted curator", ((0.0470, 0.0007), (0.0454, 0.0007), (0.0453, 0.0006))),
        ("DPFW, two parties", ((0.1502, 0.0921), (0.1989, 0.1390), (0.2013, 0.1469))),
        ("functional mechanism", ((0.0070, 0.0230), (0.0045, 0.0136), (0.0044, 0.0132))),
    ),
}

TABLE_2: tuple[_Line, ...] = (
    ("non-private", ((0.0033, 0.0101), (0.0052, 0.0157), (0.0050, 0.0154))),
    ("DPFW, trusted curator", ((0.5487, 0.1907), (40.392, 5.132), (271.09, 27.75))),
    ("DPFW, two parties", ((1.2980, 0.4537), (85.264, 10.560), (638.66, 59.70))),
    ("DPFW, four parties", ((2.2719, 0.7423), (164.95, 19.60), (1206.4, 66.2))),
    ("functional mechanism", ((0.0035, 0.0107), (0.0058, 0.0174), (0.0056, 0.0172))),
)

TABLE_3: dict[str, tuple[_Line, ...]] = {
    "Adult": (
        ("non-private", ((0.8368, 0.0029),)),
        ("DP-SGD with Laplace noise, trusted curator", ((0.6000, 0.0738), (0.6956, 0.0229), (0.8023, 0.0071))),
        ("functional mechanism", ((0.6412, 0.1463), (0.7315, 0.0379), (0.8132, 0.0231))),
    ),
    "Dutch census": (
        ("non-private", ((0.8303, 0.0040),)),
        ("DP-SGD with Laplace noise, trusted curator", ((0.5060, 0.0684), (0.6867, 0.0373), (0.8003, 0.0182))),
        ("functional mechanism", ((0.5783, 0.0572), (0.7166, 0.0489), (0.8105, 0.0086))),
    ),
}

# Seconds with one, two and four parties.
TABLE_4: dict[str, tuple[float, float, float]] = {
    "US census, linear": (0.08, 93.1, 244.4),
    "Brazil census, linear": (0.06, 47.4, 124.5),
    "Adult, logistic": (0.39, 122.7, 350.7),
    "Dutch census, logistic": (0.31, 106.3, 302.5),
}
PARTIES = (1.0, 2.0, 4.0)


def printed(group: Group, lines: tuple[_Line, ...], places: tuple[float, ...]) -> Iterator[Row]:
    """The printed lines of one table; one number for all places is repeated."""
    for method, figures in lines:
        spread = figures * len(places) if len(figures) == 1 else figures
        for place, (mean, deviation) in zip(places, spread, strict=True):
            yield group.known(place, f"paper: {method}", PUBLISHED, mean, deviation, RUNS)


def table_4() -> Iterator[Row]:
    """The printed run times; ours are in benchmarks/results, on other machines and in real processes."""
    for data, seconds in TABLE_4.items():
        group = Group("FM Table IV", data, "", "parties", "seconds")
        for parties, took in zip(PARTIES, seconds, strict=True):
            yield group.known(parties, "paper: functional mechanism", PUBLISHED, took)
