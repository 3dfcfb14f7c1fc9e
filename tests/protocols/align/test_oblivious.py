"""Alignment by transfers (``ot``): as ``dh`` in what it finds and tells, and in what it refuses.

Every two owners transfer 624 keys first, which takes most of the time of these tests, so lists and owners are few.
"""

from __future__ import annotations

import threading

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from colonnade.errors import AlignmentError, CapacityError, ProtocolError
from colonnade.mpc.oblivious import function
from colonnade.protocols import align
from colonnade.protocols.align import join, oblivious
from colonnade.protocols.roles import COORDINATOR
from colonnade.tables.keys import Key, KeyColumn, KeyPlan, collect_keys
from tests.support import protocols as kit
from tests.support.errors import raises
from tests.support.protocols import align_task

from .test_align import common_of, execute, plain_keys, pooled_tags, programs_of, received, rows_in, told_in_shapes


def make_task(owners, **how):
    return align_task(owners, mode="ot", **how)


@pytest.mark.parametrize(("owners", "hidden"), [("ab", False), ("ab", True), ("abc", False), ("abc", True)])
def test_the_result_is_the_plaintext_join(owners, hidden, stream):
    people = [f"p{number}" for number in range(900)]
    lists = {
        name: plain_keys([people[at] for at in np.argsort(stream.uint64(len(people)))[: 500 + 50 * place].tolist()])
        for place, name in enumerate(owners)
    }
    expected = align.reference([keys.values for keys in lists.values()])
    task = make_task(tuple(owners), hidden=hidden)
    found = execute(task, lists)
    assert sorted(common_of(task, lists, found)) == sorted(expected)
    assert found[COORDINATOR].count == len(expected) > 100
    assert found[COORDINATOR].sizes == {name: len(keys) for name, keys in lists.items()}
    assert len({found[name].token for name in owners}) == 1


def test_lists_in_several_pieces_and_an_empty_one(monkeypatch):
    monkeypatch.setattr(function, "PIECE", 2)
    monkeypatch.setattr(function, "_AT_ONCE", 8)
    monkeypatch.setattr(oblivious, "AT_WORK", 16)
    lists = {"a": plain_keys(f"{n}" for n in range(200)), "b": plain_keys(f"{n}" for n in range(150, 400))}
    task = make_task(("a", "b"))
    assert set(common_of(task, lists, execute(task, lists))) == set(lists["b"].values[:50])
    lists["a"] = plain_keys([])
    with raises(AlignmentError, "AL001", "b"):
        execute(task, lists)


@pytest.mark.parametrize("hidden", [False, True], ids=["visible", "hidden"])
def test_padded_lists_have_one_length_and_the_same_members(hidden):
    lists = {"a": plain_keys(f"{n}" for n in range(30)), "b": plain_keys(f"{n}" for n in range(20, 25))}
    task = make_task(("a", "b"), pad_to=50, hidden=hidden)
    found = execute(task, lists)
    assert set(common_of(task, lists, found)) == set(lists["b"].values)
    assert found[COORDINATOR].sizes == {"a": 50, "b": 50}
    assert found["a"].size == (100 if hidden else 5)
    with raises(CapacityError, "CA015", "pad_to"):
        execute(make_task(("a", "b"), pad_to=29, hidden=hidden), lists)


def test_keys_of_several_columns_unicode_and_duplicates():
    parts = (Key("name", case="fold", blanks="collapse", accents="strip"), Key("born", kind="date"))
    columns = {"name": KeyColumn("name"), "born": KeyColumn("born")}
    rows = {
        "a": [("Zoë  van Dam", "1990-02-01"), ("Ana", "1991-02-01"), ("ab", "2001-01-11"), ("Ana", None)],
        "b": [("ANA", "1991-02-01"), ("zoe van\u00a0dam", "1990-02-01"), ("a", "2001-01-11"), (" ana", "1991-02-01")],
    }
    lists = {
        owner: collect_keys(
            pa.table({"name": [name for name, _ in held], "born": pa.array([day for _, day in held], pa.string())}),
            KeyPlan(parts, "first"),
            columns,
            owner,
        )
        for owner, held in rows.items()
    }
    assert {name: len(keys) for name, keys in lists.items()} == {"a": 3, "b": 3}
    found = execute(make_task(("a", "b"), keys=parts, duplicates="first"), lists)
    joined = [[lists[name].parts(row) for row in found[name].rows.tolist()] for name in "ab"]
    assert joined[0] == joined[1]
    assert set(joined[0]) == {("zoe van dam", "1990-02-01"), ("ana", "1991-02-01")}


def test_hidden_the_leader_serves_all_others_at_once(monkeypatch):
    """Nobody waits until the leader is done with somebody else, so nobody seems silent.

    Owner b lays its list out only when the others have their choices. Pieces of all lists are taken in turn.
    """
    monkeypatch.setattr(function, "PIECE", 1)
    others, chosen, order = ("b", "c", "d"), {name: threading.Event() for name in "bcd"}, []
    real_choose, real_ask, real_held = oblivious._choose, oblivious._ask, oblivious._held

    def choose(me, asker, run):
        found = real_choose(me, asker, run)
        if me.name == "a":
            chosen[asker].set()
        return found

    def ask(me, *rest):
        if me.name == "b":
            assert all(event.wait(60) for event in chosen.values()), "the others wait for b"
        real_ask(me, *rest)

    def held(me, asker, *rest):
        for holder in real_held(me, asker, *rest):
            if me.name == "a":
                order.append(asker)
            yield holder

    monkeypatch.setattr(oblivious, "_choose", choose)
    monkeypatch.setattr(oblivious, "_ask", ask)
    monkeypatch.setattr(oblivious, "_held", held)
    lists = {"a": plain_keys(f"{n}" for n in range(40))}
    lists |= {name: plain_keys(f"{n}" for n in range(place, 60 + place)) for place, name in enumerate(others)}
    task = make_task(("a", *others), hidden=True)
    found = execute(task, lists)
    assert set(common_of(task, lists, found)) == align.reference([keys.values for keys in lists.values()])
    assert found[COORDINATOR].count == 38
    assert order == [*others] * len(function.pieces(60))


# --- what is seen


def test_what_is_received_is_new_in_every_run_and_as_good_as_uniform():
    lists = {"a": plain_keys(f"{n:05d}" for n in range(300)), "b": plain_keys(f"{n:05d}" for n in range(10, 400))}
    task, seen = make_task(("a", "b")), []
    for _ in range(2):
        logs: dict = {}
        execute(task, lists, log=logs)
        seen.append({row for messages in logs.values() for _, fields in messages for row in rows_in(fields)})
    assert len(seen[0]) > 1000
    assert not seen[0] & seen[1]
    values = {value for keys in lists.values() for value in keys.values}
    assert not any(value in row for value in values for row in seen[0])
    told = received(logs, "b")
    octets = np.bincount(
        np.hstack([fields["words"] for fields in told["columns"]]).view(np.uint8).ravel(), minlength=256
    )
    assert stats.chisquare(octets).pvalue > 1e-9
    shown = [np.vstack([fields["hiding"], fields["listed"]]).view(np.uint8).ravel() for fields in told["sums"]]
    assert stats.chisquare(np.bincount(np.hstack(shown), minlength=256)).pvalue > 1e-9
    told = received(logs, COORDINATOR)
    assert set(told) == {"align", "aligning", "common"}, "the coordinator learns lengths, progress and the count"
    assert told["common"] == [{"count": 290}]


def test_an_owner_that_does_not_lead_is_told_no_length_but_the_leaders(monkeypatch):
    monkeypatch.setattr(function, "_AT_ONCE", 4)
    monkeypatch.setattr(oblivious, "AT_WORK", 4)
    monkeypatch.setattr("colonnade.protocols.align.lists._PIECE", 4)
    told = []
    for length in (9, 31):
        sizes = {"a": 7, "b": 11, "c": length}
        lists = {name: plain_keys(["1", "2", *(f"{name}{n}" for n in range(2, size))]) for name, size in sizes.items()}
        logs: dict = {}
        execute(make_task(tuple(sizes)), lists, log=logs)
        told.append(told_in_shapes(logs, "b"))
    assert len(told[0][COORDINATOR]) >= 2
    assert told[0] == told[1]


def test_pads_hide_what_is_stored_from_a_leader_who_guesses(monkeypatch):
    """The leader can compute the share of any key. What is stored for keys off its list must look random to it.

    It tries every key with all that it has: its own rows at the place of that key.
    """
    kept: dict = {}
    real_stored, real_shares, real_values = join.stored, join.zero_shares, function.Asker.values

    def spy_stored(own, values, stream):
        kept["values"] = values
        return real_stored(own, values, stream)

    def spy_shares(me, keys, secrets):
        shares = real_shares(me, keys, secrets)
        kept[me.name] = dict(zip(keys, (share.tobytes() for share in shares.astype("<u8")), strict=True))
        return shares

    lists = {"a": plain_keys(["1", "2"]), "b": plain_keys(f"{n}" for n in range(1, 200))}

    def spy_values(self):
        listed, rows = self._listed, self._hiding()
        hashes = function.hashed(lists["b"].values, listed.salt)
        tried = function._values(
            self._context, hashes, function.Answers(rows[: listed.cells], listed.seed)(hashes[:, :2])
        )
        kept["pads"] = dict(zip(lists["b"].values, tried[:, 2:], strict=True))
        return real_values(self)

    monkeypatch.setattr(join, "stored", spy_stored)
    monkeypatch.setattr(join, "zero_shares", spy_shares)
    monkeypatch.setattr(function.Asker, "values", spy_values)
    execute(make_task(("a", "b")), lists)
    stored = {value.tobytes() for value in np.ascontiguousarray(kept["values"]).astype("<u8")}
    assert kept["a"][lists["a"].values[0]] == kept["b"][lists["a"].values[0]], "the two shares cancel"
    opened = {
        key
        for key, share in kept["b"].items()
        if (np.frombuffer(share, "<u8") ^ kept["pads"][key]).tobytes() in stored or share in stored
    }
    assert opened == set(lists["a"].values), "its own people and nobody else"


def test_hidden_no_one_owner_can_compute_the_tags_of_another(monkeypatch):
    """An owner that pools with the coordinator knows one of two functions; the leader's tags need the other too."""
    lists = {"a": plain_keys(["1", "2", "3"]), "b": plain_keys(["3", "4", "5", "6"])}
    real, guessed = function.Holder.values, []

    def values(self, keys, ahead=()):
        (found,) = real(self, [*keys, *(lists["a"].values if len(keys) == 4 else lists["b"].values)])
        guessed.append(found[len(keys) :, :2])
        yield found[: len(keys)]

    monkeypatch.setattr(function.Holder, "values", values)
    _, seen = pooled_tags(make_task(("a", "b"), hidden=True), lists)
    (of_leader,), (of_other,) = seen["a"], seen["b"]
    assert len(of_leader & of_other) == 1
    assert sorted(len(words) for words in guessed) == [3, 4]
    for words in guessed:
        tried = {row.tobytes() for row in np.ascontiguousarray(words)}
        tried |= {(row ^ np.frombuffer(tag, "<u8")).tobytes() for row in words for tag in of_leader | of_other}
        assert not tried & (of_leader | of_other)


# --- peers that deviate


def deviating(monkeypatch, task, lists, **changes):
    """How everybody ends if some messages are changed by functions of their fields."""
    real = kit.Watched.recv

    def recv(self, kind, *most):
        fields = real(self, kind, *most)
        return fields | changes[kind](fields) if kind in changes else fields

    with monkeypatch.context() as patch:
        patch.setattr(kit.Watched, "recv", recv)
        return kit.outcomes(task, programs_of(task, lists), log={})


def flipped(array):
    changed = array.copy()
    changed.flat[0] ^= changed.dtype.type(1)
    return changed


@pytest.mark.parametrize(
    ("kind", "change", "words"),
    [
        ("offer", lambda fields: {"point": bytes(32)}, "a sent something else than an element of the group"),
        ("offer", lambda fields: {"point": bytes(31)}, "offer"),
        ("choices", lambda fields: {"points": fields["points"][:-1]}, "choices"),
        ("choices", lambda fields: {"points": np.full_like(fields["points"], 255)}, "b sent something else than elem"),
        ("asked", lambda fields: {"seed": 7}, "asked"),
        ("columns", lambda fields: {"words": fields["words"][:, 1:]}, "columns"),
        ("columns", lambda fields: {"words": ~fields["words"]}, "a sent 'sums' that do not fit"),
        ("challenge", lambda fields: {"keys": bytes(16)}, "challenge"),
        ("challenge", lambda fields: {"keys": bytes(64)}, "a sent 'sums' that do not fit"),
        ("sums", lambda fields: {"listed": flipped(fields["listed"])}, "a sent 'sums' that do not fit"),
        ("sums", lambda fields: {"hiding": fields["hiding"][:, :1]}, "sums"),
    ],
)
def test_what_does_not_belong_there_is_refused(monkeypatch, kind, change, words):
    lists = {name: plain_keys(["1", "2"]) for name in "ab"}
    ends = deviating(monkeypatch, make_task(("a", "b")), lists, **{kind: change})
    assert any(isinstance(end, ProtocolError) and words in str(end) for end in ends.values()), ends


def test_a_leader_that_asks_for_everybody_at_once_asks_for_nobody(monkeypatch):
    """In a matrix without code words every key would have a value that the leader knows; here no key has."""
    real = function.Listed.__init__

    def emptied(self, keys, stream):
        real(self, keys, stream)
        self.rows[:] = 0

    monkeypatch.setattr(function.Listed, "__init__", emptied)
    lists = {name: plain_keys(f"{n}" for n in range(40)) for name in "ab"}
    ends = kit.outcomes(make_task(("a", "b")), programs_of(make_task(("a", "b")), lists))
    assert all(isinstance(end, AlignmentError) for end in ends.values())
    assert "nobody is common" in str(ends["a"])


@pytest.mark.parametrize(
    ("side", "step", "said"),
    [
        ("Listed", "__init__", "CA013"),
        ("Asker", "values", "CA013"),
        ("Holder", "__init__", "CA013"),
        ("Holder", "values", "CA013"),
    ],
)
def test_a_list_for_which_memory_does_not_suffice_ends_with_a_sentence(monkeypatch, side, step, said):
    def too_much(*_):
        np.empty(1 << 56, dtype=np.uint64)  # no machine has as much, so numpy refuses

    monkeypatch.setattr(getattr(function, side), step, too_much)
    lists = {name: plain_keys(["p1", "p2"]) for name in "ab"}
    with raises(CapacityError, said):
        execute(make_task(("a", "b")), lists)


def test_owners_of_two_runs_have_no_function_in_common():
    """Messages that somebody passes on between two studies: the holder finds that they ask for no list of its run."""
    lists = {name: plain_keys(f"{n}" for n in range(40)) for name in "ab"}
    task = make_task(("a", "b"))

    def programs(runs):
        roles = {name: (lambda me, n=name: align.owner(me, lists[n], task, run=runs[n])) for name in "ab"}
        return roles | {COORDINATOR: lambda me: align.coordinator(me, task)}

    found = kit.results(task, programs({"a": b"one study", "b": b"one study"}))
    assert len(common_of(task, lists, found)) == 40
    ends = kit.outcomes(task, programs({"a": b"one study", "b": b"another"}))
    assert isinstance(ends["b"], ProtocolError)
    assert "a sent 'sums' that do not fit" in str(ends["b"])
