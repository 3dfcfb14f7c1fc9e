"""What tests of fixed-point numbers and of shared bits have in common, and how they compare what seats see."""

from __future__ import annotations

import numpy as np
from scipy import stats

from colonnade.mpc import PRIMES, Committee
from colonnade.mpc.fixed_point.arithmetic import FixedPointEngine
from colonnade.mpc.fixed_point.shared_bits import BitEngine, BitShares, word_count

from ..conftest import dealt, make as committee_of, opened


def random_bits(hand: BitEngine, bits: int, count: int) -> BitShares:
    """Uniform bits that nobody knows: each group's own, added up."""
    drawn = [stream.uint64((bits, word_count(count))) for _, stream in hand.common.streams]
    first, *rest = hand.group_bits(drawn, count)
    for more in rest:
        first = hand.xor(first, more)
    return first


def join_bits(words, count):
    """The numbers whose bits ``slice_bits`` took apart."""
    bits = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=-1, count=count, bitorder="little")
    places = np.uint64(1) << np.arange(len(bits), dtype=np.uint64)
    return np.bitwise_or.reduce(bits * places[:, None], axis=0)


def make(size=3, threshold=1, primes=6, *, active=False):
    return committee_of(size, threshold, PRIMES[:primes], active=active)


def called(case):
    """A short id of a committee in a parametrised test, or any other."""
    seats = f"{len(case.seats)} seats{', active' * case.active}" if isinstance(case, Committee) else None
    return seats or str(getattr(case, "__name__", case))


def compute(play, program, *inputs, committee=None, fraction=20, bits=30, hands=None):
    """Deal integer arrays, run a program of one engine on them at every seat, and open what it returns."""

    def seat(hand):
        engine = FixedPointEngine(hand, fraction)
        numbers = [engine.from_shares(dealt(hand, "n0", values), (1 << bits) - 1) for values in inputs]
        found = program(engine, *numbers)
        engine.settle()
        return opened(hand, found.shares, found.bound), found.fraction, engine

    results = play(committee or make(), seat, hands)
    assert all(np.array_equal(found, results["n0"][0]) for found, *_ in results.values())
    return results["n0"]


# --- what seats see


def views(play, operation, secret, committee, pool, count=1200):
    """What pooled seats hold, receive and open while all compute on one number, many times over.

    Of each seat its share of the input and every message; then the messages together with that share, and, of two
    seats, their messages together.
    """
    seen = {name: [] for name in pool}

    def program(engine, x):
        log, hand = seen.get(engine.engine.name), engine.engine
        if log is None:
            return operation(engine, x)
        log.append(x.shares.values.copy())
        for link in hand.links.values():
            link.recv = spied(link.recv, log, lambda fields: fields.values())

        def low_words(found):
            return [] if found is None else [engine.system.low_word(found).astype(float)]

        hand.open_among_seats = spied(hand.open_among_seats, log, low_words)
        hand.open_to_readers = spied(hand.open_to_readers, log, low_words)
        engine.masks.bits.open = spied(engine.masks.bits.open, log, lambda found: [found])
        result = operation(engine, x)
        for link in hand.links.values():
            del link.recv  # the result itself may be known
        return result

    def spied(method, log, arrays):
        def spy(*arguments, **options):
            found = method(*arguments, **options)
            log.extend(array.copy() for array in arrays(found) if isinstance(array, np.ndarray))
            return found

        return spy

    compute(play, program, np.full(count, secret), bits=26, committee=committee)
    together = [array + seen[name][0] for name in pool for array in seen[name][1:] if fits(array, seen[name][0])]
    first, last = seen[pool[0]], seen[pool[-1]]
    if first is not last:
        # A seat that is no reader hears less, so the longer list goes on alone.
        together += [joined(a, b) for a, b in zip(first, last, strict=False) if fits(a, b)]
        together += [joined(a, last[0]) for a in first[1:] if fits(a, last[0])]
    return [array for name in pool for array in seen[name]] + together


def fits(array, other):
    return array.shape == other.shape and (array.dtype == np.uint64) == (other.dtype == np.uint64)


def joined(a, b):
    return a ^ b if a.dtype == np.uint64 else a.astype(float) + b


def pvalues_of_bits(first, second):
    """What ``chi2_contingency`` says of zeros and ones in each row of both, for thousands of rows at once."""
    total = 64 * first.shape[1]
    ones = np.array(
        [np.unpackbits(np.ascontiguousarray(s).view(np.uint8), axis=1).sum(axis=1) for s in (first, second)]
    )
    ones = ones[:, np.minimum(ones.sum(axis=0), 2 * total - ones.sum(axis=0)) > 20]
    expected = ones.sum(axis=0) / 2
    off = np.maximum(np.abs(ones[0] - expected) - 0.5, 0)
    return stats.chi2.sf(2 * off**2 * (1 / expected + 1 / (total - expected)), 1).tolist()


def pvalues_of_numbers(first, second):
    """What a chi-square test says of the numbers in each row of both, in eight classes of about the same size."""
    edges = np.quantile(np.concatenate([first, second], axis=1), np.linspace(0, 1, 9), axis=1)
    edges[-1] = np.inf
    counts = [np.diff([(side < edge[:, None]).sum(axis=1) for edge in edges], axis=0) for side in (first, second)]
    total = counts[0] + counts[1]
    many = total > 20
    apart = np.where(many, (counts[0] - counts[1]) ** 2 / np.maximum(total, 1), 0).sum(axis=0)
    freedom = many.sum(axis=0) - 1
    return stats.chi2.sf(apart, freedom)[freedom > 0].tolist()


def differences(first, second):
    """The smallest p-value of a difference between two transcripts, row by row, and how many of numbers and bits."""
    assert [a.shape for a in first] == [b.shape for b in second]
    values, bits = [], 0
    for a, b in zip(first, second, strict=True):
        rows = [array.reshape(-1, array.shape[-1]) for array in (a, b)]
        if a.dtype == np.uint64:
            bits += len(rows[0])
            values += pvalues_of_bits(*rows)
        else:
            values += pvalues_of_numbers(*rows)
    return min(values), len(values), bits
