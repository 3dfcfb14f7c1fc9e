"""Rounds: what is reported when, who may end them, and when noise that runs ahead is refused."""

from __future__ import annotations

import numpy as np

from colonnade.errors import ProtocolError
from colonnade.protocols.rounds import EarlyStop, NextNoise, Rounds
from tests.support.errors import raises


def went(turns, every, last=None):
    reported, taken = [], []
    rounds = Rounds(turns, lambda *said: reported.append(said), "search", every)
    for turn in rounds:
        taken.append(turn)
        if turn == last:
            rounds.end()
    return taken, reported


def test_rounds_are_reported_when_they_are_over():
    assert went("abc", 1) == (["a", "b", "c"], [("search", 1, 3), ("search", 2, 3), ("search", 3, 3)])


def test_some_rounds_are_reported_together_and_the_last_always():
    assert went(range(5), 2)[1] == [("search", 2, 5), ("search", 4, 5), ("search", 5, 5)]


def test_the_round_that_ends_them_is_reported_and_none_follows():
    assert went(range(9), 4, last=1) == ([0, 1], [("search", 2, 9)])


def test_numbers_that_get_no_smaller_for_some_epochs_end_the_rounds():
    stop = EarlyStop(patience=2, steps=2)
    sizes = [3, 3, 2, 2, 2, 2, 5, 0]  # the energies of the epochs are 18, 8, 8 and 25
    assert [stop.after(np.array([float(size)])) for size in sizes] == [False] * 7 + [True]


def test_without_patience_nothing_ends_early():
    stop = EarlyStop(patience=None, steps=1)
    assert not any(stop.after(np.ones(1)) for _ in range(20))


def test_noise_that_was_drawn_ahead_is_for_one_message_only():
    ahead = NextNoise("bank", 9, lambda name, variance, count: np.full(count, variance))
    ahead.prepare(3)
    for wrong in [("shop", 9, 3), ("bank", 8, 3), ("bank", 9, 2)]:
        with raises(ProtocolError, "MS041"):
            ahead(*wrong)
    assert ahead("bank", 9, 3).tolist() == [9, 9, 9]
    with raises(ProtocolError, "MS041"):
        ahead("bank", 9, 3)
