"""Samples per second of the exact noise samplers, beside numpy's inexact ones and, if installed, OpenDP's."""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from fractions import Fraction
from importlib.metadata import version
from pathlib import Path

import numpy as np

from colonnade.privacy.noise import discrete_gaussian, discrete_laplace, discrete_laplace_share, skellam
from colonnade.randomness import Stream

SIGMAS = [10, 10**3, 10**6, 10**9, 10**12]
POISSON_MOST = 9.2e18  # numpy refuses more
REQUIRED = 2e6
TARGET = Path(__file__).parent / "results" / "samplers.md"
RATIOS = [
    ("discrete Gaussian", "OpenDP discrete Gaussian"),
    ("discrete Laplace", "OpenDP discrete Laplace"),
    ("Skellam", "numpy Poisson difference"),
    ("discrete Gaussian", "numpy rounded normal"),
    ("discrete Laplace", "numpy rounded Laplace"),
]
Draw = tuple[Callable[[], object], int]
Rates = dict[str, dict[int, float]]

try:
    import opendp.prelude as opendp
except ImportError:
    opendp = None


def samplers(sigma: int, count: int) -> dict[str, Draw]:
    """What to time, and how many samples each call draws."""
    stream, inexact = Stream.fresh(), np.random.default_rng()
    variance = Fraction(sigma**2)
    mu = float(variance) / 2
    found: dict[str, Draw] = {
        "discrete Gaussian": (lambda: discrete_gaussian(variance, count, stream), count),
        "Skellam": (lambda: skellam(variance / 2, count, stream), count),
        "discrete Laplace": (lambda: discrete_laplace(sigma, count, stream), count),
        "Polya share, a third": (lambda: discrete_laplace_share(sigma, 3, count, stream), count),
        "Polya share, a hundredth": (lambda: discrete_laplace_share(sigma, 100, count, stream), count),
        "numpy rounded normal": (lambda: np.rint(inexact.normal(0, sigma, count)), count),
        "numpy rounded Laplace": (lambda: np.rint(inexact.laplace(0, sigma, count)), count),
    }
    if mu <= POISSON_MOST:
        found["numpy Poisson difference"] = (
            lambda: inexact.poisson(mu, count) - inexact.poisson(mu, count),
            count,
        )
    return found | peers(sigma, min(count, 10_000))


def peers(sigma: int, count: int) -> dict[str, Draw]:
    """OpenDP's exact samplers, through mechanisms that add noise to a vector of zeros."""
    if opendp is None:
        return {}
    opendp.enable_features("contrib")
    domain, zeros = opendp.vector_domain(opendp.atom_domain(T="i64")), [0] * count
    gaussian = opendp.m.make_gaussian(domain, opendp.l2_distance(T="f64"), scale=float(sigma))
    laplace = opendp.m.make_laplace(domain, opendp.l1_distance(T="i64"), scale=float(sigma))
    return {
        "OpenDP discrete Gaussian": (lambda: gaussian(zeros), count),
        "OpenDP discrete Laplace": (lambda: laplace(zeros), count),
    }


def rate(draw: Callable[[], object], count: int, repeats: int = 5) -> float:
    """The best of a few runs, in processor time, because others may use the machine."""
    draw()  # builds the table, which is kept
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        draw()
        best = min(best, time.process_time() - start)
    return count / best


def measure(count: int) -> Rates:
    rows: Rates = {}
    for sigma in SIGMAS:
        for name, (draw, drawn) in samplers(sigma, count).items():
            rows.setdefault(name, {})[sigma] = rate(draw, drawn)
    return rows


def table(title: str, lines: dict[str, dict[int, str]]) -> list[str]:
    head = [f"| {title} | " + " | ".join(f"{sigma:.0e}" for sigma in SIGMAS) + " |", "|---" * (len(SIGMAS) + 1) + "|"]
    return head + [
        f"| {name} | " + " | ".join(cells.get(sigma, "-") for sigma in SIGMAS) + " |" for name, cells in lines.items()
    ]


def page(rows: Rates, count: int) -> str:
    """The figures as Markdown, ratios first."""
    ratios = {
        f"{ours} / {theirs}": {s: f"{rows[ours][s] / rows[theirs][s]:.3g} x" for s in rows[theirs]}
        for ours, theirs in RATIOS
        if theirs in rows
    }
    rates = {name: {s: f"{value / 1e6:.3g}" for s, value in line.items()} for name, line in rows.items()}
    least = min(rate for name in ("discrete Gaussian", "Skellam") for rate in rows[name].values())
    met = "PASS" if least >= REQUIRED else "FAIL"
    known = f"numpy {np.__version__}" + (f", OpenDP {version('opendp')}" if opendp else ", OpenDP absent")
    return "\n".join(
        [
            "# Samplers",
            "",
            f"Made by `python benchmarks/samplers.py --count {count} --write`: {platform.machine()}, "
            f"Python {platform.python_version()}, {known}.",
            "Best of five runs in processor time, one core. Columns are deviations; for Laplace and Polya, scales.",
            "",
            *table("how many times as fast", ratios),
            "",
            "OpenDP's are exact. numpy's are neither exact nor cryptographic; its Poisson refuses the last column.",
            "",
            *table("million samples/s", rates),
            "",
            f"{met}: at least {REQUIRED / 1e6:.0f} million exact discrete Gaussian or Skellam samples a second on one "
            f"core; the slowest figure is {least / 1e6:.3g} million.",
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help=f"also write results/{TARGET.name}")
    options = parser.parse_args()
    rows = measure(options.count)
    if options.json:
        print(json.dumps({"unit": "samples per second, one core", "rates": rows}, indent=2))
    else:
        print(page(rows, options.count))
    if options.write:
        TARGET.write_text(page(rows, options.count), encoding="utf-8")


if __name__ == "__main__":
    main()
