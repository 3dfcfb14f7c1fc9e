"""The catalogue: every cheat is caught where seats check each other, and the games notice a check that is missing."""

from __future__ import annotations

import csv
import json
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from colonnade.errors import PeerLost, PeerStopped, ShareError
from colonnade.message_schema import Integer, MessageSchema, receive_message
from colonnade.mpc import Shares
from colonnade.mpc.verification import bit_products, claims, input_proofs, transcript
from research.__main__ import app
from research.cheats import equivocation, known, trials
from research.cheats.catalogue import CHEATS
from research.cheats.scenes import COMMITTEES
from research.cheats.stage import Stage, StagePlace
from research.cheats.trials import HONEST, Job, Row, all_scenes, jobs, occasions, play, play_all

SCENES = all_scenes()


def row(scene: str, cheat: str, seats: int = 3, checked: bool = True, trials: int = 2) -> Row:
    return play(Job(scene, cheat, seats, (seats - 1) // 2, checked, trials, 7))


@pytest.mark.parametrize(
    ("scene", "committee"),
    [
        ("dealing", (4, 1)),
        ("inner product", (3, 1)),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in product(sorted(SCENES), COMMITTEES)),
    ],
)
def test_every_cheat_in_an_operation_of_a_committee_is_caught(scene: str, committee: tuple[int, int]) -> None:
    """A check lets a cheat through with a chance of at most 2^-40."""
    played = [found for _, found in play_all(jobs([SCENES[scene]], 1, committees=[committee], seed=3))]
    assert [found.cheat for found in played if not found.good] == []
    assert sum(found.caught for found in played) >= (5 if SCENES[scene].checked else 0)


@pytest.mark.parametrize("scene", sorted(SCENES))
def test_honest_runs_open_what_the_plain_computation_gives(scene: str) -> None:
    for seats, checked in ((3, False), (4, SCENES[scene].checked)):
        found = play(Job(scene, HONEST, seats, 1, checked, 1, 1))
        assert found.idle == found.trials == 1, (seats, checked, found.reasons)


def test_where_nobody_checks_a_wrong_product_changes_the_result() -> None:
    for scene in ("inner product", "products in a row", "polynomial", "hidden members"):
        found = row(scene, "a sharing of a product plus one", checked=False)
        assert found.missed == found.trials == 2, scene
        assert found.good  # a twin: nothing else was to be expected


def test_the_games_notice_a_zero_test_that_is_opened_before_its_degree_is_lowered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever waits for the other shares could then choose its own so that zero is opened."""

    def opened_at_once(self: claims.ShareClaims, values, *_) -> None:
        hand, t = self._engine, self._engine.committee.threshold
        found = hand.multiply(hand.random(values.shape[1:]), Shares(values, t))
        masked = hand.add([found, hand.zero(found.shape, 2 * t)])
        assert not np.any(hand.open_residues(masked.values, masked.degree))

    cheat = "a wrong product hidden by waiting for others"
    assert row("inner product", cheat).caught == 2
    monkeypatch.setattr(claims.ShareClaims, "_test_zero", opened_at_once)
    broken = row("inner product", cheat)
    assert (broken.missed, broken.good) == (2, False)


def test_the_games_notice_a_proof_of_bounds_that_does_not_look_at_sums_of_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The liar makes every equation true modulo every prime: only that its bits are large gives it away."""
    cheat = "a number a thousand times its bound, with squares and bits modulo every prime"
    assert row("proof of bounds", cheat, trials=1).caught == 1
    monkeypatch.setattr(input_proofs.ProofWindow, "hidden", property(lambda self: (-(2**999), 2**999)))
    assert row("proof of bounds", cheat, trials=1).missed == 1


def test_the_games_notice_seats_that_open_before_all_have_received(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever holds its part back until another seat has opened then chooses what is opened."""
    wrong = ("inner product", "a wrong product hidden by a part held back")
    noise = ("moments", "noise held back until others open")
    assert row(*wrong).caught == row(*noise).caught == 2
    monkeypatch.setattr(transcript.TranscriptAgreement, "agree", lambda self: None)
    for seats in (3, 5):
        assert row(*wrong, seats, trials=4).missed > 0, seats
    # Moments are settled at the end, after everybody's noise: whoever holds its noise back waits for itself.
    assert row(*noise, 3, trials=4).missed == 0


def test_the_games_notice_a_check_of_bits_that_is_opened_before_all_have_received(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cheat = "a wrong AND hidden by a part held back"
    assert row("comparison", cheat).caught == 2
    real = bit_products.BitProductClaims._lower

    def no_coin_after(self: bit_products.BitProductClaims, values):
        if values.size == 1:
            self._coin = partial(setattr, self, "_coin", self._coin)  # once
        return real(self, values)

    monkeypatch.setattr(bit_products.BitProductClaims, "_lower", no_coin_after)
    broken = row("comparison", cheat, trials=6)
    assert broken.caught == 0 < broken.missed


@pytest.mark.parametrize("cheat", ["a coin drawn again until it suits", "a comparison asked for again and again"])
def test_the_games_notice_seats_that_repeat_a_coin_as_often_as_one_likes(
    cheat: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One try in 32 is liked at once, so that eight of them are has a chance of 2^-40."""
    assert row("products in a row", cheat, trials=8).caught > 0
    monkeypatch.setattr(transcript.TranscriptAgreement, "_repeat", lambda self: None)
    assert row("products in a row", cheat, trials=8).missed > 0


def test_as_many_seats_deviate_at_once_as_the_threshold_says() -> None:
    todo = jobs([SCENES["products in a row"]], 1, committees=[(5, 2)])
    assert {job.deviating for job in todo} == {1, 2}
    several = [play(job) for job in todo if job.deviating == 2]
    assert [found.cheat for found in several if not found.good] == []
    assert sum(found.caught for found in several) >= 10
    assert Job("dealing", CHEATS[0].name, 7, 3, True, 1, 0, 3).cheaters == ("o0", "o1", "o2")


def test_leaving_noise_out_is_allowed_and_counted_as_such() -> None:
    found = row("polynomial", "no noise")
    assert (found.allowed, found.good, found.caught) == (True, True, 0)


def test_scenes_keep_the_order_of_the_committed_page() -> None:
    """Seeds count jobs, so that another order would be other trials."""
    page = (Path(__file__).parents[2] / "benchmarks" / "results" / "cheats.csv").read_text(encoding="utf-8")
    assert list(SCENES) == list(dict.fromkeys(line["protocol"] for line in csv.DictReader(page.splitlines())))


def test_names_of_cheats_are_different_and_each_has_an_occasion_somewhere() -> None:
    assert len({cheat.name for cheat in CHEATS}) == len(CHEATS)
    scenes = ("products in a row", "gradients", "directions", "comparison", "proven marginals", "proven directions")
    for name in (cheat.name for cheat in CHEATS if cheat.needs != "lies"):
        assert any(occasions(Job(scene, name, 4, 1, True, 0, 0)) for scene in scenes), name


# --- attacks that work against seats that do not check each other; each must read what it says it reads


def test_shares_on_no_polynomial_show_cells_exactly_although_nothing_is_opened() -> None:
    found, stopped = known.parity(), known.parity(security="active")
    assert (found.read, found.cells) == (48, 48)
    assert (stopped.read, stopped.opened) == (0, False)
    for outcome in (found.outcome, stopped.outcome):
        assert isinstance(outcome.reason, ShareError)
        assert not outcome.accepted
    assert "lie on polynomials of one degree" in str(stopped.outcome.reason)


def test_an_opener_that_tells_seats_different_numbers_reads_cells_exactly() -> None:
    found = equivocation.equivocation(victims=5)
    assert (found.read, found.cells) == (5, 5)
    stopped = equivocation.equivocation(victims=5, security="active")
    assert stopped.read < 5  # a guess among 129 values is right by chance, five of them once in 10^10
    assert not stopped.outcome.accepted
    assert "told different numbers" in str(stopped.outcome.reason)


# --- participants on a stage play in turn, and nobody waits for a clock


NUMBER = MessageSchema("number", value=Integer(0, 100))


def ask(place: StagePlace, peer: str) -> int:
    found: int = receive_message(place.channel(peer), peer, NUMBER)["value"]
    return found


@pytest.mark.parametrize(("value", "heard"), [(7, 8), (100, "number")])
def test_whoever_is_named_last_sees_what_the_others_sent_before_it_sends(value: int, heard: int | str) -> None:
    """And messages come in through the same door as between machines: 101 is no number of this kind."""

    def first(place: StagePlace) -> int:
        place.channel("last").send("number", value=value)
        return ask(place, "last")

    def last(place: StagePlace) -> None:
        place.channel("first").send("number", value=ask(place, "first") + 1)

    found = Stage(["first", "last"]).run({"first": first, "last": last})["first"]
    assert found == heard if isinstance(heard, int) else heard in str(found)


def test_who_says_nothing_is_given_up_and_who_stops_stops_all_but_a_cheater_leaves_without_a_word() -> None:
    def leaves(place: StagePlace, silent: bool) -> None:
        place.silent = silent
        place.abort("it has enough")

    for other, error in (
        (lambda place: ask(place, "a"), PeerLost),
        (partial(leaves, silent=False), PeerStopped),
        (partial(leaves, silent=True), PeerLost),
    ):
        ended = Stage(["a", "b"]).run({"a": lambda place: ask(place, "b"), "b": other})
        assert isinstance(ended["a"], error)


# --- ``python -m research cheats``, as a person types it


ONE = ["cheats", "--protocol", "inner product", "--committee", "3/1", "--jobs", "1"]


def typed(*words: str) -> tuple[int, str]:
    found = CliRunner().invoke(app, [*ONE, *words])
    return found.exit_code, found.output + str(found.exception or "")


def test_rows_say_what_was_played_how_often_and_which_check_caught_it(tmp_path: Path) -> None:
    status, text = typed("--cheat", "plus one", "--trials", "3", "--twins", "--out", str(tmp_path), "--json")
    assert status == 0
    honest, cheat, twin = json.loads(text)["rows"]
    assert (honest["cheat"], honest["trials"], honest["without_effect"]) == (trials.HONEST, 3, 3)
    assert (cheat["seats"], cheat["threshold"], cheat["trials"], cheat["caught"], cheat["missed"]) == (3, 1, 3, 3, 0)
    assert list(cheat["by"]) == ["a check of products of shares failed"]
    assert (twin["checked"], twin["missed"]) == (False, 1)
    assert [row["misses"] for row in csv.DictReader((tmp_path / "cheats.csv").read_text().splitlines())] == [*"001"]


def test_a_miss_ends_with_status_one_and_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims.ShareClaims, "settle", lambda self: None)
    status, text = typed("--cheat", "plus one")
    assert status == 1
    assert "MISSED" in text
    assert "1 cheats: 0 caught, 0 without effect, 1 missed; 1 honest runs, 0 false alarms" in text


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--protocol", "poker"], "no protocol 'poker' is played"),
        (["--cheat", "aces"], "no cheat has these words in its name"),
        (["--committee", "9/4"], "a committee is one of 3/1, 4/1, 5/2, 7/3"),
    ],
)
def test_unknown_names_are_refused_in_one_sentence(words: list[str], sentence: str) -> None:
    status, text = typed(*words)
    assert status != 0
    assert sentence in " ".join(text.split())
