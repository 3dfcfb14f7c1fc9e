"""Shamir sharing over a residue system: computes with shares, sends no messages.

A sharing of degree ``d`` among nodes 1..n is a polynomial that has the secret at 0. The secret and ``d`` of the
shares determine all other shares. So a dealer draws ``d`` shares from seeds, sends the seeds instead of these shares,
and computes the other shares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import NO_RESULT, ShareError
from colonnade.mpc.residues import FEW, Residues, ResidueSystem, Scratch, centred, chunks, draw, filled, reduce, spread
from colonnade.randomness import Stream

Points = Sequence[int]
Chunk = NDArray[np.float64]


@cache
def weights(prime: int, known: tuple[int, ...], at: int) -> list[int]:
    """Lagrange factors: the value at ``at`` is the sum of the values at ``known``, each times its factor."""
    result = []
    for i in known:
        top = bottom = 1
        for j in known:
            if j != i:
                top = top * (at - j) % prime
                bottom = bottom * (i - j) % prime
        result.append(centred(top * pow(bottom, -1, prime), prime))
    return result


def complete(
    system: ResidueSystem, secret: Residues, drawn: Mapping[int, Stream], nodes: Points
) -> dict[int, Residues]:
    """The shares of ``nodes``, for the polynomial with ``secret`` at 0 and numbers from streams at ``drawn``."""
    streams = list(drawn.values())
    if secret.size <= FEW:
        known = [secret, *(system.uniform(secret.shape[1:], stream) for stream in streams)]
        return {node: combine(system, known, (0, *drawn), node) for node in nodes}
    shares = {node: np.empty(secret.shape) for node in nodes}
    scratch = Scratch(len(streams) + 1)
    for index, prime in enumerate(system.primes):
        factors = {node: weights(prime, (0, *drawn), node) for node in nodes}
        targets = [chunks(share[index]) for share in shares.values()]
        for known, *parts in zip(chunks(secret[index]), *targets, strict=True):
            *values, spare = scratch.of(known.size)
            for value, stream in zip(values, streams, strict=True):
                draw(prime, value, stream)  # chunk by chunk, as the receiving seat draws too: a chunk fits in the cache
            for node, part in zip(nodes, parts, strict=True):
                _combine(prime, [known, *values], factors[node], part, spare)
    return shares


@lru_cache(maxsize=256)
def _factors(
    system: ResidueSystem, points: tuple[int, ...], at: int, shape: tuple[int, ...], digits: bool
) -> list[Residues]:
    """For each point, its weights modulo all primes, as one array of this shape."""
    rows = [_weights(system, index, points, at, digits) for index in range(len(system.primes))]
    return [filled(column, shape) for column in zip(*rows, strict=True)]


def _weights(system: ResidueSystem, index: int, points: tuple[int, ...], at: int, digits: bool) -> list[float]:
    prime, factor = system.primes[index], system.to_digits[index] if digits else 1
    return [float(centred(weight * factor, prime)) for weight in weights(prime, points, at)]


def combine(
    system: ResidueSystem, values: Sequence[Residues], points: Points, at: int, *, digits: bool = False
) -> Residues:
    """The value at ``at`` of the polynomial that has ``values`` at ``points``, as residues or as digits."""
    if values[0].size <= FEW:
        rows = _factors(system, tuple(points), at, spread(values[0].shape), digits)
        total = values[0] * rows[0]
        for value, row in zip(values[1:], rows[1:], strict=True):
            total += value * row
        return system.reduce(total)
    out, scratch = np.empty(values[0].shape), Scratch(1)
    for index, prime in enumerate(system.primes):
        factors = _weights(system, index, tuple(points), at, digits)
        parts = [chunks(value[index]) for value in values]
        for target, *sources in zip(chunks(out[index]), *parts, strict=True):
            _combine(prime, sources, factors, target, *scratch.of(target.size))
    return out


def _combine(prime: int, sources: Sequence[Chunk], factors: Sequence[float], target: Chunk, spare: Chunk) -> None:
    np.multiply(sources[0], factors[0], out=target)
    for factor, source in zip(factors[1:], sources[1:], strict=True):
        np.multiply(source, factor, out=spare)
        target += spare
    reduce(target, prime, spare)


def interpolate(
    system: ResidueSystem, shares: Mapping[int, Residues], degree: int, *, digits: bool = False
) -> Residues:
    """The secret, as residues or as digits. All shares, also those beyond ``degree + 1``, must fit one polynomial."""
    points = sorted(shares)
    if len(points) <= degree:
        raise ShareError(f"{len(points)} shares cannot open a sharing of degree {degree} [SH007]")
    base, spare = points[: degree + 1], points[degree + 1 :]
    values = [shares[point] for point in base]
    for point in spare:
        if not np.array_equal(combine(system, values, base, point), shares[point]):
            raise differing([f"node {point}" for point in points])
    return combine(system, values, base, 0, digits=digits)


def differing(seats: Sequence[str]) -> ShareError:
    """The error for shares that do not lie on one polynomial."""
    return ShareError(
        f"the shares of {', '.join(seats)} do not lie on one polynomial, as one of them computed or sent something "
        f"else: {NO_RESULT} [SH008]"
    )
