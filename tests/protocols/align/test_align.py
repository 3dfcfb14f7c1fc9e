"""Alignment: the plain join in every mode, what each participant sees of it, and whoever sends something else.

Every two owners of ``ot`` transfer 624 keys first, which takes most of the time of its tests, so there lists and owners
are few.
"""

from __future__ import annotations

import hashlib
import threading
from dataclasses import replace
from functools import reduce
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from scipy import stats

from colonnade.errors import AlignmentError, CapacityError, DisagreementError, ProtocolError, StudyError
from colonnade.mpc import blinding, oblivious
from colonnade.mpc.blinding import BlindingScalar
from colonnade.protocols import align
from colonnade.protocols.align import dh_psi, messages as vocabulary, ot_psi, programs
from colonnade.protocols.roles import COORDINATOR
from tests.support import protocols as kit
from tests.support.errors import raises, refused
from tests.support.protocols import align_task as make_task

BOTH = pytest.mark.parametrize("mode", ["dh", "helper"])
MODES = [("dh", False), ("dh", True), ("helper", False), ("helper", True), ("ot", False)]


def lists_of(**people):
    """The keys of everybody's people."""
    return {name: kit.keys_of(f"{person}" for person in held) for name, held in people.items()}


def execute(task, lists, log=None, **how):
    """Run an alignment; what everybody holds in the end."""
    return kit.results(task, kit.align_programs(task, lists, **how), log=log)


def at_slots(lists, found, owners):
    """Whom each owner has in which slot."""
    return {
        name: {
            s: lists[name].values[r] for s, r in zip(found[name].slots.tolist(), found[name].rows.tolist(), strict=True)
        }
        for name in owners
    }


def common_of(task, lists, found):
    """The keys that the alignment joins, after checking that everybody means the same by each row."""
    if task.hidden:
        first, *others = at_slots(lists, found, task.owners).values()
        shared = sorted(set(first).intersection(*others))
        assert all(slots[slot] == first[slot] for slots in others for slot in shared)
        return [first[slot] for slot in shared]
    orders = [[lists[name].values[row] for row in found[name].rows.tolist()] for name in task.owners]
    assert all(order == orders[0] for order in orders)
    assert all(np.array_equal(found[name].index, found[task.owners[0]].index) for name in task.owners)
    return orders[0]


def check(task, lists, log=None):
    """Everybody ends with the plain join; returns what everybody holds."""
    found = execute(task, lists, log)
    expected = align.reference([keys.values for keys in lists.values()])
    assert sorted(common_of(task, lists, found)) == sorted(expected)
    assert found[COORDINATOR].count == len(expected)
    sizes = {name: task.pad_to or len(keys) for name, keys in lists.items()}
    assert found[COORDINATOR].sizes == sizes
    assert len({found[name].token for name in task.owners}) == 1
    return found


# --- equal to the plaintext join


@pytest.mark.parametrize(("mode", "hidden"), MODES[:4])
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_the_result_is_the_plaintext_join(mode, hidden, data):
    owners = tuple(f"o{i}" for i in range(data.draw(st.integers(2, 4))))
    people = st.lists(st.text(min_size=1, max_size=6), unique=True, max_size=40)
    everyone, lists = data.draw(people), {}
    for owner in owners:
        held = [person for person in everyone if data.draw(st.booleans())] + data.draw(people)
        lists[owner] = kit.keys_of(dict.fromkeys(data.draw(st.permutations(held))))
    task = make_task(owners, mode=mode, hidden=hidden)
    if align.reference([keys.values for keys in lists.values()]) or hidden:
        check(task, lists)
    else:
        refused(AlignmentError, "AL001", execute, task, lists)


@pytest.mark.parametrize(
    ("mode", "sizes", "hidden"),
    [
        ("helper", (1, 5_000, 300), False),
        ("helper", (4_097, 8_192, 4_096), True),
        ("ot", (500, 550), False),
        pytest.param("dh", (10_000, 9_000), False, marks=pytest.mark.slow),
    ],
)
def test_long_lists(mode, sizes, hidden, stream):
    people = np.array([f"p{number}" for number in range(max(sizes) + 1000)])
    drawn = [people[np.argsort(stream.uint64(len(people)))[:size]] for size in sizes]
    lists = lists_of(**{f"o{i}": ["both", *own] for i, own in enumerate(drawn)})
    check(make_task(tuple(lists), mode=mode, hidden=hidden), lists)


def test_lists_in_several_pieces_and_an_empty_one(monkeypatch):
    monkeypatch.setattr(dh_psi, "_PIECE", 16)
    for name, size in (("PIECE", 2), ("_KEYS_AT_ONCE", 8)):
        monkeypatch.setattr(oblivious, name, size)
    monkeypatch.setattr(ot_psi, "AT_WORK", 16)
    lists = lists_of(a=range(3, 163), b=range(150), c=range(0, 400, 2))
    for mode, owners in (("dh", "ab"), ("dh", "ba"), ("dh", "abc"), ("dh", "cb"), ("ot", "ac")):
        check(make_task(tuple(owners), mode=mode), {name: lists[name] for name in owners})
    with raises(AlignmentError, "AL001", "b"):
        execute(make_task(("a", "b"), mode="ot"), {"a": kit.keys_of([]), "b": lists["b"]})


def test_hidden_the_leader_serves_all_others_at_once(monkeypatch):
    """Nobody waits until the leader is done with somebody else, so nobody seems silent.

    Owner b lays its list out only when the others have their choices.
    """
    chosen = {name: threading.Event() for name in "bc"}
    real_choose, real_ask = ot_psi._choose, ot_psi._ask

    def choose(me, asker, run):
        found = real_choose(me, asker, run)
        if me.name == "a":
            chosen[asker].set()
        return found

    def ask(me, *rest):
        if me.name == "b":
            assert all(event.wait(60) for event in chosen.values()), "the others wait for b"
        real_ask(me, *rest)

    monkeypatch.setattr(ot_psi, "_choose", choose)
    monkeypatch.setattr(ot_psi, "_ask", ask)
    lists = lists_of(a=range(40), b=range(60), c=range(1, 61))
    check(make_task(("a", "b", "c"), mode="ot", hidden=True), lists)


# --- what is seen


def received(logs, name):
    """Everything that a participant received, by kind."""
    found: dict[str, list] = {}
    for (_, who), messages in logs.items():
        if who == name:
            for kind, fields in messages:
                found.setdefault(kind, []).append(fields)
    return found


def uniform(array):
    octets = np.bincount(np.ascontiguousarray(array).view(np.uint8).ravel(), minlength=256)
    return stats.chisquare(octets).pvalue > 1e-9


@pytest.mark.parametrize(
    ("mode", "hidden", "owners"), [*product(("dh", "helper"), (False, True), ["abc"]), ("ot", False, "ab")]
)
def test_nothing_that_is_received_comes_again_in_another_run(mode, hidden, owners):
    """What anybody receives about anybody is new in every run: no equality across runs, in or between lists."""
    lists = lists_of(**{name: range(10_000 + step, 10_120 + step) for step, name in enumerate(owners)})
    task = make_task(tuple(owners), mode=mode, hidden=hidden)
    seen = []
    for _ in range(2):
        logs: dict = {}
        execute(task, lists, logs)
        values = [value for messages in logs.values() for _, fields in messages for value in fields.values()]
        arrays = [np.ascontiguousarray(value) for value in values if isinstance(value, np.ndarray) and value.ndim == 2]
        seen.append({row.tobytes() for array in arrays for row in array})
    assert len(seen[0]) > 100
    assert not seen[0] & seen[1]
    values = {value for keys in lists.values() for value in keys.values}
    assert not any(value in row for value in values for row in seen[0])
    if mode == "ot":
        told = received(logs, "b")
        assert uniform(np.hstack([fields["words"] for fields in told["columns"]]))
        assert uniform(np.vstack([fields[which] for fields in told["sums"] for which in ("hiding", "listed")]))
    if not hidden and mode != "helper":
        told = received(logs, COORDINATOR)
        assert set(told) == {"align", "aligning", "common"}, "the coordinator learns lengths, progress and the count"
        assert told["common"] == [{"count": 121 - len(owners)}]


def test_the_other_owner_sees_fresh_random_elements_in_no_order(monkeypatch):
    """dh: what the second owner receives is as good as uniform, and its order is not that of the leader's file."""
    lists, order, real = lists_of(a=range(1000, 1400), b=range(1395, 1900)), [], blinding.hash_to_group
    monkeypatch.setattr(dh_psi, "hash_to_group", lambda keys: order.extend(keys) or real(keys))
    logs: dict = {}
    execute(make_task(("a", "b")), lists, logs)
    captured = np.vstack([fields["points"] for fields in received(logs, "b")["blinded"]])
    assert uniform(captured[:, :31]), "the last byte is below 128"
    of_leader = [int(key[4:]) for key in order if key in set(lists["a"].values)][:400]
    assert abs(stats.spearmanr(of_leader, range(400)).statistic) < 0.3


def test_the_leader_cannot_tell_who_lacks_a_person(monkeypatch):
    """With three owners, the leader's sums for a person that one or both others lack are random alike."""
    sums, real = [], programs._common
    monkeypatch.setattr(programs, "_common", lambda total: sums.append(total) or real(total))
    everyone, only_b, nobody = range(50), range(100, 400), range(1000, 1300)
    lists = lists_of(
        a=[*everyone, *only_b, *nobody], b=[*everyone, *only_b, *range(5000, 5600)], c=[*everyone, *range(7000, 7700)]
    )
    check(make_task(("a", "b", "c")), lists)
    (total,) = sums
    apart = total[total.any(axis=1)]
    assert len(apart) == 600
    assert uniform(apart)


def told_in_shapes(logs, name):
    """All that somebody receives, in order by sender: numbers, shapes and sizes, and nothing that is random.

    How often it is told that the leader is at work depends on time alone; that the leader is done is told once.
    """

    def form(value):
        return value.shape if isinstance(value, np.ndarray) else len(value) if isinstance(value, bytes) else value

    return {
        sender: [
            (kind, {key: form(value) for key, value in fields.items()})
            for kind, fields in messages
            if (kind, fields) != ("waiting", {"more": True})
        ]
        for (sender, who), messages in logs.items()
        if who == name
    }


@pytest.mark.parametrize(
    ("mode", "hidden", "who"),
    [("dh", False, "b"), ("dh", True, "c"), ("helper", False, "c"), ("helper", True, "b"), ("ot", False, "b")],
)
def test_an_owner_that_does_not_lead_is_told_no_length_but_those_in_the_table(monkeypatch, mode, hidden, who):
    """Everything that it receives, down to the number of messages, is the same whatever the others' lists are.

    Hidden, the sum of all lengths is told; so there the lists change under the same sum.
    """
    for module, name in (
        (dh_psi, "_PIECE"),
        (vocabulary, "_PIECE"),
        (oblivious, "_KEYS_AT_ONCE"),
        (ot_psi, "AT_WORK"),
    ):
        monkeypatch.setattr(module, name, 4)
    told, known = [], {"a": 7, "b": 11} if mode == "ot" else {"a": 7, "b": 11, "c": 11}
    for lengths in [(31, 9), (20, 20)] if hidden else [(9,), (31,)] if mode == "ot" else [(9, 9), (40, 20)]:
        sizes = known | dict(zip("de", lengths, strict=False))
        lists = lists_of(**{name: [1, 2, *(f"{name}{n}" for n in range(2, size))] for name, size in sizes.items()})
        logs: dict = {}
        execute(make_task(tuple(sizes), seats=("a", "b", "d"), mode=mode, hidden=hidden), lists, logs)
        told.append(told_in_shapes(logs, who))
    assert len(told[0][COORDINATOR]) >= 2
    assert all(one == told[0] for one in told[1:])


@BOTH
def test_hidden_slots_do_not_depend_on_who_matches(mode):
    """An owner's slots are a random choice, whether the others hold all of its people or none but one."""
    for others in (range(40), range(100, 140)):
        logs: dict = {}
        found = execute(make_task(("a", "b"), mode=mode, hidden=True), lists_of(a=range(40), b=others), logs)["a"]
        told = {"align-plan", "slots", "align-key", "lengths", "list", "blinded", "blinded twice", "waiting"}
        assert set(received(logs, "a")) <= told, "there is no verdict"
        assert (found.size, sorted(found.rows.tolist())) == (80, list(range(40)))
        assert abs(found.slots.mean() - 39.5) < 16, "40 of 80 slots: the deviation of their mean is about 2.6"


def pooled_tags(task, lists):
    """What the coordinator sees of a hidden alignment: lists of tags by who sent them."""
    logs: dict = {}
    execute(task, lists, logs)
    return {
        peer: [{row.tobytes() for row in fields["words"]} for kind, fields in messages if kind == "tags"]
        for (peer, who), messages in logs.items()
        if who == COORDINATOR
    }


def test_hidden_and_without_a_helper_no_one_owner_can_compute_tags(monkeypatch):
    """An owner that pools with the coordinator knows its own scalar; the leader's tags need the leader's too."""
    drawn: dict = {}
    real = BlindingScalar.generate.__func__

    def spy(cls, stream):
        made = real(cls, stream)
        drawn.setdefault(threading.get_ident(), []).append(made)
        return made

    monkeypatch.setattr(BlindingScalar, "generate", classmethod(spy))
    lists = lists_of(a=[1, 2, 3], b=[3, 4, 5, 6])
    seen = pooled_tags(make_task(("a", "b"), hidden=True), lists)
    (of_leader,), (of_other,) = seen["a"], seen["b"]
    assert len(of_leader & of_other) == 1
    guesses = blinding.hash_to_group(lists["a"].values)
    for blinds in drawn.values():
        for scalars in (*((one,) for one in blinds), *combinations(blinds, 2)):
            tags = vocabulary.KeyTags.empty(len(guesses))
            dh_psi._set_points(tags, 0, reduce(lambda points, scalar: scalar.multiply(points), scalars, guesses))
            assert not {row.tobytes() for row in tags.tags} & of_leader


def test_hidden_no_one_owner_can_compute_the_tags_of_another_by_transfers(monkeypatch):
    """An owner that pools with the coordinator knows one of two functions; the leader's tags need the other too."""
    lists = lists_of(a=[1, 2, 3], b=[3, 4, 5, 6])
    real, guessed = oblivious.PrfKeyHolder.values, []

    def values(self, keys, ahead=()):
        (found,) = real(self, [*keys, *(lists["a"].values if len(keys) == 4 else lists["b"].values)])
        guessed.append(found[len(keys) :, :2])
        yield found[: len(keys)]

    monkeypatch.setattr(oblivious.PrfKeyHolder, "values", values)
    seen = pooled_tags(make_task(("a", "b"), mode="ot", hidden=True), lists)
    (of_leader,), (of_other,) = seen["a"], seen["b"]
    assert len(of_leader & of_other) == 1
    assert sorted(len(words) for words in guessed) == [3, 4]
    for words in guessed:
        tried = {row.tobytes() for row in np.ascontiguousarray(words)}
        tried |= {(row ^ np.frombuffer(tag, "<u8")).tobytes() for row in words for tag in of_leader | of_other}
        assert not tried & (of_leader | of_other)


@BOTH
def test_whoever_joins_hidden_lists_or_compares_slots_learns_of_common_people_only(mode):
    """The coordinator cannot compare lists without the leader. Two that do not lead: equal slots mean a person on both
    lists whom the leader holds, and nothing else is told.
    """
    task = make_task(("a", "b", "c"), mode=mode, hidden=True)
    seen = pooled_tags(task, lists_of(a=[1, 2], b=[2, 3, 4, 5], c=[2, 3, 4, 6]))
    (for_b, for_c), (of_b,), (of_c,) = seen["a"], seen["b"], seen["c"]
    assert not of_b & of_c
    assert (len(for_b & of_b), len(for_c & of_c), len(for_b & for_c)) == (1, 1, 0)
    lists = lists_of(a=range(10), b=range(5, 40), c=[*range(5, 8), *range(20, 60)])
    found = execute(task, lists)
    b, c = at_slots(lists, found, "bc").values()
    assert {b[slot] for slot in set(b) & set(c)} == {c[slot] for slot in set(b) & set(c)} == set(lists["a"].values[5:8])
    assert found["b"].size == 10 + 35 + 43


@pytest.mark.parametrize("mode", ["dh", "ot"])
def test_pads_hide_what_is_stored_from_a_leader_who_guesses(monkeypatch, mode):
    """With two owners the leader can compute the share of any key; what is stored must still look random to it.

    In ``ot`` it tries every key with all that it has: its own rows at the place of that key.
    """
    kept: dict = {}
    real_stored, real_shares, real_values = (
        programs.build_store,
        programs.zero_shares,
        oblivious.PrfQuerier.values,
    )
    lists = lists_of(a=[1, 2], b=range(1, 200))

    def spy_stored(own, values, stream):
        kept["values"] = values
        return real_stored(own, values, stream)

    def spy_shares(me, keys, secrets):
        shares = real_shares(me, keys, secrets)
        kept[me.name] = dict(zip(keys, (share.tobytes() for share in shares.astype("<u8")), strict=True))
        return shares

    def spy_values(self):
        listed, rows = self._listed, self._mask_rows()
        hashes = oblivious.hash_keys(lists["b"].values, listed.salt)
        tried = oblivious.KeyValueLookup(rows[: listed.cells], listed.seed)(hashes[:, :2])
        pads = oblivious._prf_values(self._context, hashes, tried)[:, 2:]
        kept["pads"] = dict(zip(lists["b"].values, pads, strict=True))
        return real_values(self)

    monkeypatch.setattr(programs, "build_store", spy_stored)
    monkeypatch.setattr(programs, "zero_shares", spy_shares)
    monkeypatch.setattr(oblivious.PrfQuerier, "values", spy_values)
    execute(make_task(("a", "b"), mode=mode), lists)
    stored = {value.tobytes() for value in np.ascontiguousarray(kept["values"]).astype("<u8")}
    first = lists["a"].values[0]
    assert kept["a"][first] == kept["b"][first], "the two shares cancel"
    assert not stored & set(kept["b"].values())
    if mode == "ot":
        shares = {key: np.frombuffer(share, "<u8") for key, share in kept["b"].items()}
        opened = {key for key, share in shares.items() if (share ^ kept["pads"][key]).tobytes() in stored}
        assert opened == set(lists["a"].values), "its own people and nobody else"


def test_what_owners_compare_is_every_common_key_with_its_length_and_its_name(monkeypatch, stream):
    monkeypatch.setattr(programs, "_AT_ONCE", 3)
    keys = [b"", b"one", b"three", b"a longer one", bytes(40)]
    members = programs.CommonMembers(np.array([4, 0, 2, 1]), stream.uint64((4, 2)))
    said = b"".join(
        len(keys[row]).to_bytes(8, "little") + keys[row] + number.astype("<u8").tobytes()
        for row, number in zip([4, 0, 2, 1], members.index, strict=True)
    )
    assert members.fingerprint(keys) == hashlib.sha256(said).digest()
    unknown = programs.CommonMembers(np.array([4, -1]), members.index[:2])
    assert unknown.fingerprint(keys) != unknown.fingerprint(keys), "nothing that another could hold"
    assert (
        programs.CommonMembers(np.array([], np.int64), members.index[:0]).fingerprint(keys) == hashlib.sha256().digest()
    )


# --- who leads, at_least, reuse


@pytest.mark.parametrize(
    ("mode", "lengths", "leader"),
    [
        ("dh", {"a": 30, "b": 20, "c": 10, "d": 25}, "b"),
        ("helper", {"a": 3, "b": 9}, "a"),
        ("helper", {"a": 9, "b": 3}, "a"),
    ],
)
def test_the_owner_with_a_seat_and_the_shortest_list_leads_and_with_a_helper_lengths_are_not_told(
    mode, lengths, leader
):
    logs: dict = {}
    task = make_task(tuple(lengths), seats=("a", "b", COORDINATOR), mode=mode)
    check(task, lists_of(**{name: range(size) for name, size in lengths.items()}), logs)
    assert {fields["leader"] for fields in received(logs, max(lengths))["align-plan"]} == {leader}


@BOTH
def test_too_few_matches_end_it_for_everyone_with_own_examples_only(mode):
    """Over real channels, where whoever leaves is heard at once: every owner still gets its own error and examples."""
    task = make_task(("a", "b"), mode=mode, at_least=2)
    lists = lists_of(a=["ann", "bob"], b=["bob", "eve"])
    logs: dict = {}
    errors = kit.outcomes(task, kit.align_programs(task, lists), log=logs)
    examples = {name: error.examples for name, error in errors.items()}
    assert examples == {"a": ("id 'ann'", "id 'bob'"), "b": ("id 'bob'", "id 'eve'"), COORDINATOR: ()}
    for error in errors.values():
        assert isinstance(error, AlignmentError)
        assert "only one person is common" in str(error)
        assert not any(name in str(error) + error.for_peers for name in ("ann", "bob", "eve"))
    assert received(logs, "b")["matched-size"] == [{"size": 0}], "who they are is told only if they are enough"


@pytest.mark.parametrize(("mode", "hidden"), MODES)
def test_padded_lists_have_one_length_and_the_same_members(mode, hidden):
    lists = lists_of(a=range(30), b=range(20, 25))
    task = make_task(("a", "b"), mode=mode, hidden=hidden, pad_to=50)
    assert check(task, lists)["a"].size == (100 if hidden else 5)
    assert "no lengths" in task.leakage[0].learns
    assert "lengths" not in task.sentence
    with raises(CapacityError, "CA015", "pad_to"):
        execute(make_task(("a", "b"), mode=mode, hidden=hidden, pad_to=29), lists)


def test_an_alignment_that_all_still_hold_is_not_run_again():
    lists, task, logs = lists_of(a=[1, 2], b=[1, 2]), make_task(("a", "b")), {}
    found = check(task, lists)
    kept = {name: found[name] for name in "ab"}
    again = execute(task, lists, logs, kept=kept)
    assert again["a"].reused
    assert again[COORDINATOR].reused
    assert set(common_of(task, lists, again)) == set(lists["a"].values)
    compared = {"pair-key", "compared", "compared-share"}
    assert {kind for messages in logs.values() for kind, _ in messages} == {"align", "align-plan"} | compared
    differing = execute(task, lists, kept={"a": kept["a"]})
    assert not differing["a"].reused
    assert set(common_of(task, lists, differing)) == set(lists["a"].values)


@BOTH
def test_an_alignment_that_is_used_again_is_compared_like_a_new_one(mode):
    """An owner that offers it with other rows joins nobody's rows with those that it chose."""
    lists, owners = lists_of(a=[1, 2, 3], b=[1, 2, 3], c=[1, 2, 3]), ("a", "b", "c")
    task = make_task(owners, mode=mode)
    found = check(task, lists)
    kept = {name: found[name] for name in owners}
    others = replace(kept["b"], rows=np.roll(kept["b"].rows, 1))
    for told in (others, replace(kept["b"], rows=kept["b"].rows[:2], index=kept["b"].index[:2])):
        with raises(DisagreementError, "DI002"):
            execute(task, lists, kept=kept | {"b": told})


# --- peers that deviate


def flipped(array):
    changed = array.copy()
    changed.flat[0] ^= changed.dtype.type(1)
    return changed


UNFIT = "a sent 'sums' that do not fit"
OTHERS = [
    ("dh", "blinded", {"points": np.full((2, 32), 255, np.uint8)}, "[MS001]"),
    ("dh", "blinded twice", {"points": np.zeros((3, 32), np.uint8)}, ""),
    ("dh", "list", {"size": 1 << 29}, ""),
    ("dh", "list", {"size": 3}, ""),
    ("dh", "cells", {"words": np.zeros((5, 2))}, ""),
    ("dh", "cells-size", {"size": 1 << 20}, ""),
    ("dh", "matched", {"words": np.zeros((2, 2), np.uint64)}, ""),
    ("dh", "index", {"words": np.zeros((2, 2), np.uint64)}, ""),
    ("dh", "align-plan", {"again": False, "leader": "eve"}, ""),
    ("dh", "align-plan", {"again": True}, ""),
    ("dh", "align-plan", {"leader": ""}, ""),
    ("dh", "aligning", {"done": 5}, ""),
    ("dh", "common", {"count": 3}, ""),
    ("dh", "enough", {"count": 1}, ""),
    ("ot", "offer", {"point": bytes(32)}, "a sent something else than an element of the group"),
    ("ot", "offer", {"point": bytes(31)}, "offer"),
    ("ot", "choices", {"points": lambda points: points[:-1]}, "choices"),
    ("ot", "choices", {"points": lambda points: np.full_like(points, 255)}, "b sent something else than elem"),
    ("ot", "asked", {"seed": 7}, "asked"),
    ("ot", "columns", {"words": lambda words: words[:, 1:]}, "columns"),
    ("ot", "columns", {"words": lambda words: ~words}, UNFIT),
    ("ot", "challenge", {"keys": bytes(16)}, "challenge"),
    ("ot", "challenge", {"keys": bytes(64)}, UNFIT),
    ("ot", "sums", {"listed": flipped}, UNFIT),
    ("ot", "sums", {"hiding": lambda hiding: hiding[:, :1]}, "sums"),
]


@pytest.mark.parametrize(("mode", "kind", "change", "words"), OTHERS)
def test_what_does_not_belong_there_is_refused(monkeypatch, mode, kind, change, words):
    real, task = kit.Watched.recv, make_task(("a", "b"), mode=mode)

    def recv(self, due, *most):
        fields = real(self, due, *most)
        other = {
            name: value(fields[name]) if callable(value) else value for name, value in change.items() if due == kind
        }
        return fields | other

    monkeypatch.setattr(kit.Watched, "recv", recv)
    ends = kit.outcomes(task, kit.align_programs(task, lists_of(a=[1, 2], b=[1, 2])), log={})
    assert any(isinstance(end, ProtocolError) and words in str(end) for end in ends.values()), ends


def test_a_leader_that_asks_for_everybody_at_once_asks_for_nobody(monkeypatch):
    """In a matrix without code words every key would have a value that the leader knows; here no key has."""
    real = oblivious.QueryList.__init__

    def emptied(self, keys, stream):
        real(self, keys, stream)
        self.rows[:] = 0

    monkeypatch.setattr(oblivious.QueryList, "__init__", emptied)
    task = make_task(("a", "b"), mode="ot")
    ends = kit.outcomes(task, kit.align_programs(task, lists_of(a=range(40), b=range(40))))
    assert all(isinstance(end, AlignmentError) for end in ends.values())
    assert "nobody is common" in str(ends["a"])


@pytest.mark.parametrize(("side", "step"), [("QueryList", "__init__"), ("PrfKeyHolder", "values")])
def test_a_list_for_which_memory_does_not_suffice_ends_with_a_sentence(monkeypatch, side, step):
    def too_much(*_):
        np.empty(1 << 56, dtype=np.uint64)  # no machine has as much, so numpy refuses

    monkeypatch.setattr(getattr(oblivious, side), step, too_much)
    refused(CapacityError, "CA013", execute, make_task(("a", "b"), mode="ot"), lists_of(a=[1, 2], b=[1, 2]))


def test_owners_of_two_runs_have_no_function_in_common():
    """Messages that somebody passes on between two studies: the holder finds that they ask for no list of its run."""
    lists, task = lists_of(a=range(40), b=range(40)), make_task(("a", "b"), mode="ot")
    with raises(ProtocolError, "MS006", "a sent 'sums' that do not fit"):
        execute(task, lists, run={"a": b"one study", "b": b"another"})


# --- the public settings


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"mode": "psi"}, ("ST421", "ot", "dh", "helper", "fuzzy")),
        ({"hidden": "no"}, "ST422"),
        ({"at_least": 0}, "ST423"),
        ({"at_least": 5, "hidden": True}, "ST424"),
        ({"mode": "fuzzy", "hidden": True}, "ST425"),
        ({"similarity": 0.0}, "ST426"),
        ({"similarity": "x"}, "ST426"),
        ({"pad_to": 0}, "ST427"),
        ({"mode": "fuzzy", "pad_to": 10}, "ST428"),
        ({"keys": ()}, "ST607"),
    ],
)
def test_settings_are_checked(changes, words):
    refused(StudyError, words, make_task, ("a", "b"), **changes)


@pytest.mark.parametrize("changes", [{"mode": "fuzzy"}, {"pad_to": 50_000}])
def test_lists_that_are_too_long_are_refused_without_telling_how_long(changes):
    task = make_task(("a", "b"), **changes)
    task.check_length(50_000)
    with raises(CapacityError, "CA015", "50001") as caught:
        task.check_length(50_001)
    assert "50001" not in caught.value.for_peers


def test_every_mode_says_who_learns_what():
    tables = {}
    for mode, hidden in [*MODES, ("ot", True), ("fuzzy", False)]:
        task = make_task(("a", "b"), mode=mode, hidden=hidden)
        assert [leak.who for leak in task.leakage] == ["each owner", COORDINATOR, "anybody else"]
        tables[mode, hidden] = task.leakage
    for hidden in (False, True):
        assert tables.pop(("ot", hidden)) == tables["dh", hidden], "only how it is done differs"
    assert all(one != other for one, other in combinations(tables.values(), 2))
    assert len({str(make_task(("a", "b"), mode=mode).agreement) for mode in align.MODES}) == len(align.MODES)


@pytest.mark.parametrize(("mode", "hidden"), [("dh", True), ("helper", False), ("ot", False)])
def test_the_forecast_of_bytes_is_about_what_is_sent(mode, hidden):
    task, logs = make_task(("a", "b"), mode=mode, hidden=hidden), {}
    execute(task, lists_of(a=range(600), b=range(600)), logs)
    for name in ("a", "b"):
        arrived = (fields for (sender, _), log in logs.items() if sender == name for _, fields in log)
        sent = sum(array.nbytes for fields in arrived for array in fields.values() if isinstance(array, np.ndarray))
        assert task.load(name, 600)[1] == pytest.approx(sent, rel=0.1)
