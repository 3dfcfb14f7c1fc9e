"""Shamir sharing over a residue system: pure share algebra, no messages.

A sharing of degree ``d`` among nodes 1..n is a polynomial with the secret at 0. Fixing the secret and ``d``
of the shares fixes all others, so a dealer draws those ``d`` shares from seeds, sends the seeds in place of
the shares, and computes the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from colonnade.errors import ShareError
from colonnade.mpc.residues import Residues, ResidueSystem, centred, chunks, reduce
from colonnade.randomness import Stream

Points = Sequence[int]


def weights(prime: int, known: Points, at: int) -> list[int]:
    """Lagrange: the factors that combine values at ``known`` points into the value at ``at``."""
    result = []
    for i in known:
        top = bottom = 1
        for j in known:
            if j != i:
                top = top * (at - j) % prime
                bottom = bottom * (i - j) % prime
        result.append(centred(top * pow(bottom, -1, prime), prime))
    return result


def complete(system: ResidueSystem, secret: Residues, seeds: Mapping[int, bytes], nodes: Points) -> dict[int, Residues]:
    """The shares of ``nodes``, for the polynomial through ``secret`` at 0 and the seeded shares."""
    shape = secret.shape[1:]
    drawn = [expand(system, seed, shape) for seed in seeds.values()]
    points = [0, *seeds]
    return {node: combine(system, [secret, *drawn], points, node) for node in nodes}


def expand(system: ResidueSystem, seed: bytes, shape: tuple[int, ...]) -> Residues:
    """The share that a seed stands for."""
    return system.uniform(shape, Stream(seed))


def combine(system: ResidueSystem, values: Sequence[Residues], points: Points, at: int) -> Residues:
    """The value at ``at`` of the polynomial through ``values`` at ``points``."""
    out = np.empty(values[0].shape)
    for index, prime in enumerate(system.primes):
        factors = weights(prime, points, at)
        parts = [chunks(value[index]) for value in values]
        for target, *sources in zip(chunks(out[index]), *parts, strict=True):
            np.multiply(sources[0], factors[0], out=target)
            for factor, source in zip(factors[1:], sources[1:], strict=True):
                target += source * factor
            reduce(target, prime)
    return out


def interpolate(system: ResidueSystem, shares: Mapping[int, Residues], degree: int) -> Residues:
    """The secret. Shares beyond ``degree + 1`` must lie on the same polynomial."""
    points = sorted(shares)
    if len(points) <= degree:
        raise ShareError(f"{len(points)} shares cannot open a sharing of degree {degree}")
    base, spare = points[: degree + 1], points[degree + 1 :]
    values = [shares[point] for point in base]
    for point in spare:
        if not np.array_equal(combine(system, values, base, point), shares[point]):
            raise ShareError(
                f"the shares of nodes {', '.join(map(str, points))} do not lie on one polynomial: "
                "a node computed or sent something else, and nothing was opened"
            )
    return combine(system, values, base, 0)
