"""Samples per second of the exact noise samplers, beside numpy's inexact ones and, if installed, OpenDP's."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from colonnade.privacy.noise import discrete_gaussian, skellam
from colonnade.randomness import Stream

SIGMAS = [10, 10**3, 10**6, 10**9, 10**12]
POISSON_MOST = 9.2e18  # numpy refuses more

try:
    import opendp.prelude as opendp
except ImportError:
    opendp = None


def samplers(sigma: int, count: int) -> dict[str, tuple[Callable[[], object], int]]:
    """What to time, and how many samples each call draws."""
    stream, inexact = Stream.fresh(), np.random.default_rng()
    variance = Fraction(sigma**2)
    mu = float(variance) / 2
    found: dict[str, tuple[Callable[[], object], int]] = {
        "discrete Gaussian": (lambda: discrete_gaussian(variance, count, stream), count),
        "Skellam": (lambda: skellam(variance / 2, count, stream), count),
        "numpy rounded normal": (lambda: np.rint(inexact.normal(0, sigma, count)), count),
    }
    if mu <= POISSON_MOST:
        found["numpy Poisson difference"] = (
            lambda: inexact.poisson(mu, count) - inexact.poisson(mu, count),
            count,
        )
    if opendp is not None:
        opendp.enable_features("contrib")
        space = opendp.vector_domain(opendp.atom_domain(T="i64")), opendp.l2_distance(T="f64")
        mechanism = opendp.m.make_gaussian(*space, scale=float(sigma))
        few = [0] * min(count, 10_000)
        found["OpenDP discrete Gaussian"] = (lambda: mechanism(few), len(few))
    return found


def rate(draw: Callable[[], object], count: int) -> float:
    draw()  # builds the table, which is kept
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        draw()
        best = min(best, time.perf_counter() - start)
    return count / best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows: dict[str, dict[int, float]] = {}
    for sigma in SIGMAS:
        for name, (draw, drawn) in samplers(sigma, options.count).items():
            rows.setdefault(name, {})[sigma] = rate(draw, drawn)
    if options.json:
        print(json.dumps({"unit": "samples per second, one core", "rates": rows}, indent=2))
        return
    print(f"{'million samples/s, one core':<28}" + "".join(f"{f'sigma {s:.0e}':>14}" for s in SIGMAS))
    for name, rates in rows.items():
        cells = (f"{rates[s] / 1e6:14.2f}" if s in rates else f"{'-':>14}" for s in SIGMAS)
        print(f"{name:<28}" + "".join(cells))


if __name__ == "__main__":
    main()
