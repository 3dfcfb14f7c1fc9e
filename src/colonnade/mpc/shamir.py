"""Shamir sharing over a residue system: pure share algebra, no messages.

A sharing of degree ``d`` among nodes 1..n is a polynomial with the secret at 0. Fixing the secret and ``d``
of the shares fixes all others, so a dealer draws those ``d`` shares from seeds, sends the seeds in place of
the shares, and computes the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import ShareError
from colonnade.mpc.residues import FEW, Residues, ResidueSystem, centred, chunks, draw, reduce
from colonnade.randomness import Stream

Points = Sequence[int]
Chunk = NDArray[np.float64]


@cache
def weights(prime: int, known: tuple[int, ...], at: int) -> list[int]:
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
    streams = [Stream(seed) for seed in seeds.values()]
    shares = {node: np.empty(secret.shape) for node in nodes}
    for index, prime in enumerate(system.primes):
        factors = {node: weights(prime, (0, *seeds), node) for node in nodes}
        targets = [chunks(share[index]) for share in shares.values()]
        for known, *parts in zip(chunks(secret[index]), *targets, strict=True):
            values = [known, *(np.empty(known.size) for _ in streams)]
            for value, stream in zip(values[1:], streams, strict=True):
                draw(prime, value, stream)  # chunk by chunk, as expand does, while it is in the cache
            for node, part in zip(nodes, parts, strict=True):
                _combine(prime, values, factors[node], part)
    return shares


def expand(system: ResidueSystem, seed: bytes, shape: tuple[int, ...]) -> Residues:
    """The share that a seed stands for."""
    return system.uniform(shape, Stream(seed))


def combine(system: ResidueSystem, values: Sequence[Residues], points: Points, at: int) -> Residues:
    """The value at ``at`` of the polynomial through ``values`` at ``points``."""
    if values[0].size <= FEW:
        shape = (len(system.primes), *[1] * (values[0].ndim - 1))
        rows = np.array([weights(prime, tuple(points), at) for prime in system.primes], dtype=np.float64).T
        total = values[0] * rows[0].reshape(shape)
        for value, row in zip(values[1:], rows[1:], strict=True):
            total += value * row.reshape(shape)
        return system.reduce(total)
    out = np.empty(values[0].shape)
    for index, prime in enumerate(system.primes):
        factors = weights(prime, tuple(points), at)
        parts = [chunks(value[index]) for value in values]
        for target, *sources in zip(chunks(out[index]), *parts, strict=True):
            _combine(prime, sources, factors, target)
    return out


def _combine(prime: int, sources: Sequence[Chunk], factors: Sequence[int], target: Chunk) -> None:
    np.multiply(sources[0], factors[0], out=target)
    for factor, source in zip(factors[1:], sources[1:], strict=True):
        target += source * factor
    reduce(target, prime)


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
