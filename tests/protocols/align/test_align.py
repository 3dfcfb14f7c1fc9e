from __future__ import annotations

import hashlib
import struct
import threading
import unicodedata
from collections import Counter
from functools import reduce
from itertools import combinations, product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from scipy import stats

from colonnade.errors import AlignmentError, CapacityError, ProtocolError, StudyError
from colonnade.protocols import align
from colonnade.protocols.align import join
from colonnade.protocols.roles import COORDINATOR
from colonnade.tables.keys import Key, KeyColumn, KeyPlan, Keys, collect_keys
from tests.support import protocols as kit
from tests.support.errors import raises
from tests.support.protocols import align_task as make_task

BOTH = pytest.mark.parametrize("mode", ["dh", "helper"])
SEEN_OR_NOT = pytest.mark.parametrize("hidden", [False, True], ids=["visible", "hidden"])
QUIET = {"deadline": None, "suppress_health_check": list(HealthCheck)}


def plain_keys(values):
    found = [struct.pack("<I", len(value.encode())) + value.encode() for value in values]
    return Keys(("id",), found, np.arange(len(found)), 0, 0)


def programs_of(task, lists, known=None):
    """Every role; ``known`` are the tokens of alignments that owners still hold."""
    roles = {
        name: (lambda me, n=name: align.owner(me, lists[n], task, (known or {}).get(n, b""))) for name in task.owners
    }
    return roles | {COORDINATOR: lambda me: align.coordinator(me, task)}


def execute(task, lists, known=None, log=None):
    """Run an alignment; what everybody holds in the end."""
    return kit.results(task, programs_of(task, lists, known), log=log)


def common_of(task, lists, found):
    """The keys that the alignment joins, after checking that everybody means the same by each row."""
    if task.hidden:
        at = {
            name: {s: lists[name].values[r] for s, r in zip(got.slots.tolist(), got.rows.tolist(), strict=True)}
            for name, got in found.items()
            if name != COORDINATOR
        }
        shared = set.intersection(*(set(slots) for slots in at.values()))
        for slot in shared:
            assert len({slots[slot] for slots in at.values()}) == 1
        return [next(iter(at.values()))[slot] for slot in sorted(shared)]
    owners = [name for name in found if name != COORDINATOR]
    orders = [[lists[name].values[row] for row in found[name].rows.tolist()] for name in owners]
    assert all(order == orders[0] for order in orders)
    assert all(np.array_equal(found[name].index, found[owners[0]].index) for name in owners)
    return orders[0]


# --- equal to the plaintext join


@BOTH
@SEEN_OR_NOT
@settings(max_examples=6, **QUIET)
@given(data=st.data())
def test_the_result_is_the_plaintext_join(mode, hidden, data):
    count = data.draw(st.integers(2, 4))
    owners = tuple(f"o{i}" for i in range(count))
    people = st.lists(st.text(min_size=1, max_size=6), unique=True, max_size=40)
    everyone = data.draw(people)
    lists = {}
    for owner in owners:
        held = [person for person in everyone if data.draw(st.booleans())] + data.draw(people)
        lists[owner] = plain_keys(list(dict.fromkeys(data.draw(st.permutations(held)))))
    expected = align.reference([keys.values for keys in lists.values()])
    task = make_task(owners, mode=mode, hidden=hidden)
    if not expected and not hidden:
        with raises(AlignmentError, "AL001"):
            execute(task, lists)
        return
    found = execute(task, lists)
    assert Counter(common_of(task, lists, found)) == Counter(expected)
    assert found[COORDINATOR].count == len(expected)
    assert found[COORDINATOR].sizes == {name: len(keys) for name, keys in lists.items()}
    assert len({found[name].token for name in owners}) == 1


@pytest.mark.parametrize("sizes", [(10_000, 7_000), (1, 10_000, 300), (4_097, 8_192, 4_096)])
@SEEN_OR_NOT
def test_long_lists_in_helper_mode(sizes, hidden, stream):
    people = [f"p{number}" for number in range(12_000)]
    lists = {
        f"o{i}": plain_keys(["both", *(people[at] for at in np.argsort(stream.uint64(len(people)))[:size].tolist())])
        for i, size in enumerate(sizes)
    }
    task = make_task(tuple(lists), mode="helper", hidden=hidden)
    found = execute(task, lists)
    assert set(common_of(task, lists, found)) == align.reference([keys.values for keys in lists.values()])


def test_blinding_in_several_pieces(monkeypatch):
    monkeypatch.setattr("colonnade.protocols.align.tags._PIECE", 16)
    lists = {"a": plain_keys(f"{n}" for n in range(3, 163)), "b": plain_keys(f"{n}" for n in range(150))}
    lists |= {"c": plain_keys(f"{n}" for n in range(0, 400, 2))}
    for owners in (("a", "b"), ("b", "a"), ("a", "b", "c"), ("c", "b")):
        chosen = {name: lists[name] for name in owners}
        task = make_task(owners)
        found = execute(task, chosen)
        assert set(common_of(task, chosen, found)) == align.reference([keys.values for keys in chosen.values()])


@pytest.mark.slow
def test_ten_thousand_people_without_a_helper():
    lists = {"a": plain_keys(f"{n}" for n in range(10_000)), "b": plain_keys(f"{n}" for n in range(5_000, 14_000))}
    task = make_task(("a", "b"))
    found = execute(task, lists)
    assert set(common_of(task, lists, found)) == align.reference([keys.values for keys in lists.values()])


def plain_text(cell):
    """What the rules used below make of a cell, said once more in other words."""
    plain = "".join(c for c in unicodedata.normalize("NFD", cell) if not unicodedata.combining(c))
    return unicodedata.normalize("NFC", " ".join(plain.casefold().split()))


names = st.sampled_from(
    ["Ana", " ana", "ANA  ", "Ána", "Zoë  van Dam", "zoe van\u00a0dam", "ZOË VAN DAM", "Œ", "œ", "李"]
)
days = st.sampled_from(["1990-02-01", "1991-02-01", None])
rows_of_people = st.lists(st.tuples(names, days), min_size=1, max_size=12)


@settings(max_examples=25, **QUIET)
@given(
    left=rows_of_people,
    right=rows_of_people,
    mode=st.sampled_from(["helper", "dh"]),
    rule=st.sampled_from(["first", "drop"]),
)
def test_composite_keys_unicode_and_duplicates(left, right, mode, rule):
    keys = (Key("name", case="fold", blanks="collapse", accents="strip"), Key("born", kind="date"))
    columns = {"name": KeyColumn("name"), "born": KeyColumn("born")}

    def held(rows):
        counts = Counter((plain_text(name), day) for name, day in rows if day)
        return {key for key, often in counts.items() if rule == "first" or often == 1}

    sides = {"a": left, "b": right}
    if not all(held(rows) for rows in sides.values()):
        return
    lists = {
        owner: collect_keys(
            pa.table({"name": [name for name, _ in rows], "born": pa.array([day for _, day in rows], pa.string())}),
            KeyPlan(keys, rule),
            columns,
            owner,
        )
        for owner, rows in sides.items()
    }
    expected = held(left) & held(right)
    task = make_task(("a", "b"), keys=keys, mode=mode, duplicates=rule)
    if not expected:
        with pytest.raises(AlignmentError):
            execute(task, lists)
        return
    found = execute(task, lists)
    joined = {lists["a"].parts(row) for row in found["a"].rows.tolist()}
    assert joined == expected
    assert joined == {lists["b"].parts(row) for row in found["b"].rows.tolist()}


@BOTH
@SEEN_OR_NOT
def test_a_party_that_reorders_its_file_gets_the_same_people(mode, hidden):
    people = [f"p{n}" for n in range(60)]
    task = make_task(("a", "b"), mode=mode, hidden=hidden)
    results = []
    for left in (people[:40], people[39::-1], people[:40:2] + people[1:40:2]):
        lists = {"a": plain_keys(left), "b": plain_keys(people[20:])}
        results.append(set(common_of(task, lists, execute(task, lists))))
    assert results[0] == results[1] == results[2] == set(plain_keys(people[20:40]).values)


# --- what is seen


def received(logs, name):
    """Everything that a participant received, by kind."""
    found: dict[str, list] = {}
    for (_, who), messages in logs.items():
        if who == name:
            for kind, fields in messages:
                found.setdefault(kind, []).append(fields)
    return found


def rows_in(fields):
    arrays = [value for value in fields.values() if isinstance(value, np.ndarray) and value.ndim == 2]
    return [row.tobytes() for array in arrays for row in np.ascontiguousarray(array)]


@BOTH
@SEEN_OR_NOT
@pytest.mark.parametrize("owners", [("a", "b"), ("a", "b", "c")], ids=["two", "three"])
def test_nothing_that_is_received_comes_again_in_another_run(mode, hidden, owners):
    """What anybody receives about anybody is new in every run: no equality across runs, in or between lists."""
    lists = {name: plain_keys(f"{n}" for n in range(step, 120 + step)) for step, name in enumerate(owners)}
    task = make_task(owners, mode=mode, hidden=hidden)
    seen = []
    for _ in range(2):
        logs: dict = {}
        execute(task, lists, log=logs)
        seen.append({row for messages in logs.values() for _, fields in messages for row in rows_in(fields)})
    assert len(seen[0]) > 100
    assert not seen[0] & seen[1]
    values = {value for keys in lists.values() for value in keys.values}
    assert not any(value in row for value in values for row in seen[0])


def test_the_other_owner_sees_fresh_random_elements_in_no_order():
    """dh: what the second owner receives is as good as uniform, and its order is not that of the leader's file."""
    from colonnade.mpc import blinding

    task = make_task(("a", "b"))
    lists = {"a": plain_keys(f"{n:04d}" for n in range(400)), "b": plain_keys(f"{n:04d}" for n in range(395, 900))}
    captured, orders = [], []
    real = blinding.hashed

    for _ in range(2):
        logs: dict = {}
        hashed_in_order = []

        def spy(keys, log=hashed_in_order):
            log.extend(keys)
            return real(keys)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("colonnade.protocols.align.tags.hashed", spy)
            execute(task, lists, log=logs)
        captured.append(np.vstack([fields["points"] for fields in received(logs, "b")["blinded"]]))
        orders.append([key for key in hashed_in_order if key in set(lists["a"].values)][: len(lists["a"])])
    octets = np.bincount(np.vstack(captured)[:, :31].ravel(), minlength=256)  # the last byte is below 128
    assert stats.chisquare(octets).pvalue > 1e-9
    assert not {row.tobytes() for row in captured[0]} & {row.tobytes() for row in captured[1]}
    assert orders[0] != orders[1] != lists["a"].values
    assert abs(stats.spearmanr([int(key[4:]) for key in orders[0]], range(len(orders[0]))).statistic) < 0.3


def test_the_leader_cannot_tell_who_lacks_a_person(monkeypatch):
    """With three owners, the leader's sums for a person that one or both others lack are random alike."""
    sums = []
    real = join._common
    monkeypatch.setattr(join, "_common", lambda total: sums.append(total) or real(total))
    everyone, only_b, nobody = (range(0, 50), range(100, 400), range(1000, 1300))
    lists = {
        "a": plain_keys(f"{n}" for part in (everyone, only_b, nobody) for n in part),
        "b": plain_keys(f"{n}" for part in (everyone, only_b, range(5000, 5600)) for n in part),
        "c": plain_keys(f"{n}" for part in (everyone, range(7000, 7700)) for n in part),
    }
    task = make_task(("a", "b", "c"))
    logs: dict = {}
    execute(task, lists, log=logs)
    (total,) = sums
    apart = total[total.any(axis=1)]
    assert len(apart) == 600
    octets = np.bincount(np.ascontiguousarray(apart).view(np.uint8).ravel(), minlength=256)
    assert stats.chisquare(octets).pvalue > 1e-9
    told = received(logs, COORDINATOR)
    assert set(told) == {"align", "aligning", "common"}, "the coordinator learns lengths, progress and the count"
    assert told["common"] == [{"count": 50}]


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


@BOTH
@SEEN_OR_NOT
@pytest.mark.parametrize("who", ["b", "c"])
def test_an_owner_that_does_not_lead_is_told_no_length_but_those_in_the_table(monkeypatch, mode, hidden, who):
    """Everything that it receives, down to the number of messages, is the same whatever the others' lists are.

    Hidden, the sum of all lengths is told; so there the lists change under the same sum.
    """
    monkeypatch.setattr("colonnade.protocols.align.tags._PIECE", 4)
    monkeypatch.setattr("colonnade.protocols.align.lists._PIECE", 4)
    told = []
    for lengths in [(31, 9), (20, 20)] if hidden else [(9, 9), (9, 31), (40, 20)]:
        sizes = {"a": 7, "b": 11, "c": 11} | dict(zip("de", lengths, strict=True))
        lists = {name: plain_keys(["1", "2", *(f"{name}{n}" for n in range(2, size))]) for name, size in sizes.items()}
        logs: dict = {}
        execute(make_task(tuple(sizes), seats=("a", "b", "d"), mode=mode, hidden=hidden), lists, log=logs)
        told.append(told_in_shapes(logs, who))
    assert len(told[0][COORDINATOR]) >= 2
    assert all(one == told[0] for one in told[1:])


@BOTH
def test_hidden_slots_do_not_depend_on_who_matches(mode):
    """An owner's slots are a random choice, whether the others hold all of its people or none but one."""
    task = make_task(("a", "b"), mode=mode, hidden=True)
    own = [f"{n}" for n in range(40)]
    means = []
    for others in (own, [f"x{n}" for n in range(40)]):
        lists = {"a": plain_keys(own), "b": plain_keys(others)}
        logs: dict = {}
        found = execute(task, lists, log=logs)
        assert found["a"].size == 80
        assert sorted(found["a"].rows.tolist()) == list(range(40))
        kinds = set(received(logs, "a"))
        told = {"align-plan", "slots", "align-key", "lengths", "list", "blinded", "blinded twice", "waiting"}
        assert kinds <= told, "there is no verdict"
        means.append(found["a"].slots.mean())
    # 40 of 80 slots: the deviation of their mean is about 2.6
    assert all(abs(mean - 39.5) < 16 for mean in means)


def pooled_tags(task, lists):
    """What the coordinator sees of a hidden alignment: lists of tags by who sent them."""
    logs: dict = {}
    found = execute(task, lists, log=logs)
    seen: dict = {}
    for (peer, who), messages in logs.items():
        if who == COORDINATOR:
            words = [{row.tobytes() for row in fields["words"]} for kind, fields in messages if kind == "tags"]
            seen[peer] = words
    return found, seen


def test_hidden_and_without_a_helper_no_one_owner_can_compute_tags(monkeypatch):
    """An owner that pools with the coordinator knows its own scalar; the leader's tags need the leader's too."""
    from colonnade.mpc.blinding import Blind, hashed
    from colonnade.protocols.align.tags import Tags

    drawn: dict = {}
    real = Blind.fresh.__func__

    def spy(cls, stream):
        made = real(cls, stream)
        drawn.setdefault(threading.get_ident(), []).append(made)
        return made

    monkeypatch.setattr(Blind, "fresh", classmethod(spy))
    lists = {"a": plain_keys(["1", "2", "3"]), "b": plain_keys(["3", "4", "5", "6"])}
    _, seen = pooled_tags(make_task(("a", "b"), hidden=True), lists)
    (of_leader,), (of_other,) = seen["a"], seen["b"]
    assert len(of_leader & of_other) == 1
    guesses = hashed(lists["a"].values)
    for blinds in drawn.values():
        assert blinds
        for scalars in (*((one,) for one in blinds), *combinations(blinds, 2)):
            tags = Tags.empty(len(guesses))
            tags.put(0, reduce(lambda points, scalar: scalar.on(points), scalars, guesses))
            assert not {row.tobytes() for row in tags.tags} & of_leader


def test_a_helper_that_hides_members_cannot_compare_lists_without_the_leader():
    lists = {
        "a": plain_keys(["1", "2"]),
        "b": plain_keys(["2", "3", "4", "5"]),
        "c": plain_keys(["2", "3", "4", "6"]),
    }
    for mode in ("helper", "dh"):
        _, seen = pooled_tags(make_task(("a", "b", "c"), mode=mode, hidden=True), lists)
        (for_b, for_c), (of_b,), (of_c,) = seen["a"], seen["b"], seen["c"]
        assert not of_b & of_c
        assert (len(for_b & of_b), len(for_c & of_c), len(for_b & for_c)) == (1, 1, 0)


@BOTH
def test_owners_who_compare_slots_learn_of_common_people_only(mode):
    """Two that do not lead: equal slots mean a person on both lists whom the leader holds, and nothing else is told."""
    lists = {
        "a": plain_keys(f"{n}" for n in range(10)),
        "b": plain_keys(f"{n}" for n in range(5, 40)),
        "c": plain_keys(f"{n}" for n in [*range(5, 8), *range(20, 60)]),
    }
    task = make_task(("a", "b", "c"), mode=mode, hidden=True)
    found = execute(task, lists)
    at = {
        name: dict(zip(found[name].slots.tolist(), (lists[name].values[r] for r in found[name].rows), strict=True))
        for name in ("b", "c")
    }
    shared = set(at["b"]) & set(at["c"])
    assert {at["b"][slot] for slot in shared} == {at["c"][slot] for slot in shared} == set(lists["a"].values[5:8])
    assert found["b"].size == 10 + 35 + 43


def test_pads_hide_what_is_stored_from_a_leader_who_guesses():
    """With two owners the leader can compute the share of any key; what is stored must still look random to it."""
    from colonnade.protocols.align import join, tags

    kept: dict = {}
    real_stored, real_shares = join.stored, join.zero_shares

    def spy_stored(own, values, stream):
        kept["values"] = values
        return real_stored(own, values, stream)

    def spy_shares(me, keys, secrets):
        shares = real_shares(me, keys, secrets)
        kept[me.name] = dict(zip(keys, (share.tobytes() for share in shares.astype("<u8")), strict=True))
        return shares

    lists = {"a": plain_keys(["1", "2"]), "b": plain_keys(f"{n}" for n in range(1, 200))}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(join, "stored", spy_stored)
        patch.setattr(join, "zero_shares", spy_shares)
        execute(make_task(("a", "b")), lists)
    stored = {value.tobytes() for value in np.ascontiguousarray(kept["values"]).astype("<u8")}
    assert kept["a"][lists["a"].values[0]] == kept["b"][lists["a"].values[0]], "the two shares cancel"
    assert not stored & set(kept["b"].values())
    assert tags.Tags.keyed([b"1"], b"k").pads.any() == np.False_


def test_what_owners_compare_is_every_common_key_with_its_length_and_its_name(monkeypatch, stream):
    monkeypatch.setattr(join, "_AT_ONCE", 3)
    keys = [b"", b"one", b"three", b"a longer one", bytes(40)]
    members = join.Members(np.array([4, 0, 2, 1]), stream.uint64((4, 2)))
    said = b"".join(
        len(keys[row]).to_bytes(8, "little") + keys[row] + number.astype("<u8").tobytes()
        for row, number in zip([4, 0, 2, 1], members.index, strict=True)
    )
    assert members.held(keys) == hashlib.sha256(said).digest()
    unknown = join.Members(np.array([4, -1]), members.index[:2])
    assert unknown.held(keys) != unknown.held(keys), "nothing that another could hold"
    assert join.Members(np.array([], np.int64), members.index[:0]).held(keys) == hashlib.sha256().digest()


# --- who leads, at_least, reuse, bad peers


def test_the_owner_with_a_seat_and_the_shortest_list_leads():
    lists = {
        "a": plain_keys(f"{n}" for n in range(30)),
        "b": plain_keys(f"{n}" for n in range(20)),
        "c": plain_keys(f"{n}" for n in range(10)),
        "d": plain_keys(f"{n}" for n in range(25)),
    }
    logs: dict = {}
    task = make_task(tuple(lists), seats=("a", "b", COORDINATOR))
    found = execute(task, lists, log=logs)
    assert len(common_of(task, lists, found)) == 10
    assert {fields["leader"] for fields in received(logs, "d")["align-plan"]} == {"b"}


def test_with_a_helper_who_leads_tells_nothing_about_lengths():
    leaders = set()
    for lengths in ((3, 9), (9, 3)):
        lists = {name: plain_keys(f"{n}" for n in range(size)) for name, size in zip("ab", lengths, strict=True)}
        logs: dict = {}
        execute(make_task(("a", "b"), mode="helper"), lists, log=logs)
        leaders |= {fields["leader"] for fields in received(logs, "b")["align-plan"]}
    assert leaders == {"a"}


@BOTH
def test_too_few_matches_end_it_for_everyone_with_own_examples_only(mode):
    lists = {"a": plain_keys(["ann", "bob"]), "b": plain_keys(["bob", "eve"])}
    task = make_task(("a", "b"), mode=mode, at_least=2)
    logs: dict = {}
    errors = kit.outcomes(task, programs_of(task, lists), log=logs)
    assert all(isinstance(error, AlignmentError) for error in errors.values())
    assert set(errors) == {"a", "b", COORDINATOR}
    assert errors["a"].examples == ("id 'ann'", "id 'bob'")
    assert errors["b"].examples == ("id 'bob'", "id 'eve'")
    assert errors[COORDINATOR].examples == ()
    for error in errors.values():
        assert "only one person is common" in str(error)
        assert not any(name in str(error) + error.for_peers for name in ("ann", "bob", "eve"))
    assert received(logs, "b")["matched-size"] == [{"size": 0}], "who they are is told only if they are enough"


def test_everyone_hears_that_too_few_match_before_anybody_leaves():
    """Over real channels, where whoever leaves is heard at once: every owner still gets its own error and examples."""
    task = make_task(("a", "b", "c"), mode="helper")
    lists = {name: plain_keys([f"{name}1", f"{name}2"]) for name in task.owners}
    for _ in range(5):
        errors = kit.outcomes(task, programs_of(task, lists))
        assert set(errors) == {*task.owners, COORDINATOR}
        for name, error in errors.items():
            assert isinstance(error, AlignmentError), (name, error)
            assert error.examples == (() if name == COORDINATOR else (f"id '{name}1'", f"id '{name}2'"))


@BOTH
@SEEN_OR_NOT
def test_padded_lists_have_one_length_and_the_same_members(mode, hidden):
    lists = {"a": plain_keys(f"{n}" for n in range(30)), "b": plain_keys(f"{n}" for n in range(20, 25))}
    task = make_task(("a", "b"), mode=mode, hidden=hidden, pad_to=50)
    found = execute(task, lists)
    assert set(common_of(task, lists, found)) == set(lists["b"].values)
    assert found[COORDINATOR].sizes == {"a": 50, "b": 50}
    assert found["a"].size == (100 if hidden else 5)
    assert "no lengths" in task.leakage[0].learns
    assert "lengths" not in task.sentence
    with raises(CapacityError, "CA015", "pad_to"):
        execute(make_task(("a", "b"), mode=mode, hidden=hidden, pad_to=29), lists)


@pytest.mark.parametrize("mode", ["ot", "dh"])
def test_an_alignment_that_all_still_hold_is_not_run_again(mode):
    lists = {name: plain_keys(["1", "2"]) for name in "ab"}
    task = make_task(("a", "b"), mode=mode)
    token = execute(task, lists)["a"].token
    logs: dict = {}
    again = execute(task, lists, known={"a": token, "b": token}, log=logs)
    assert again["a"].reused
    assert again["a"].token == token
    assert again[COORDINATOR].reused
    assert {kind for messages in logs.values() for kind, _ in messages} == {"align", "align-plan"}
    differing = execute(task, lists, known={"a": token})
    assert not differing["a"].reused
    assert set(common_of(task, lists, differing)) == set(lists["a"].values)


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("blinded", {"points": np.zeros((2, 31), np.uint8)}),
        ("blinded", {"points": np.full((2, 32), 255, np.uint8)}),
        ("list", {"size": -1}),
        ("cells", {"words": np.zeros((5, 2))}),
        ("matched", {"words": np.zeros((2, 2), np.uint64)}),
        ("store", {"seed": 7}),
        ("align", {"rows": True}),
        ("align", {"token": [1]}),
        ("align-plan", {"again": False, "leader": None}),
        ("align-plan", {"again": True}),
        ("pair-key", {"key": 5}),
        ("aligning", {"done": "all"}),
        ("aligning", {"done": 5}),
        ("waiting", {"more": 1}),
        ("list", {"size": 1 << 29}),
        ("list", {"size": 3}),
        ("lengths", {"lengths": [3]}),
        ("common", {"count": 3}),
        ("enough", {"count": 1}),
        ("align-plan", {"leader": ""}),
        ("blinded twice", {"points": np.zeros((3, 32), np.uint8)}),
        ("cells-size", {"size": 1 << 20}),
        ("index", {"words": np.zeros((2, 2), np.uint64)}),
        ("align-plan", {"again": False, "leader": "eve"}),
    ],
)
def test_what_does_not_belong_there_is_refused(monkeypatch, kind, change):
    real = kit.Watched.recv
    monkeypatch.setattr(
        kit.Watched, "recv", lambda self, k, *most: real(self, k, *most) | (change if k == kind else {})
    )
    lists = {name: plain_keys(["1", "2"]) for name in "ab"}
    with pytest.raises(ProtocolError):
        execute(make_task(("a", "b")), lists, log={})


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
    with raises(StudyError, words):
        make_task(("a", "b"), **changes)


@pytest.mark.parametrize("changes", [{"mode": "fuzzy"}, {"pad_to": 50_000}])
def test_lists_that_are_too_long_are_refused_without_telling_how_long(changes):
    task = make_task(("a", "b"), **changes)
    task.check_length(50_000)
    with raises(CapacityError, "CA015", "50001") as caught:
        task.check_length(50_001)
    assert "50001" not in caught.value.for_peers


def test_what_each_mode_tells_is_in_the_statement():
    sentences = {mode: make_task(("a", "b"), mode=mode).sentence for mode in align.MODES}
    assert "try out every key" in sentences["helper"]
    assert "try out every key" not in sentences["dh"] + sentences["ot"]
    assert "Bloom filter of every row" in sentences["fuzzy"]
    assert "try out every key" in make_task(("a", "b"), mode="helper", hidden=True).sentence


def test_every_mode_says_who_learns_what():
    tables = {}
    for mode, hidden in [("dh", False), ("helper", False), ("dh", True), ("helper", True), ("fuzzy", False)]:
        task = make_task(("a", "b"), mode=mode, hidden=hidden)
        assert [leak.who for leak in task.leakage] == ["each owner", COORDINATOR, "anybody else"]
        tables[mode, hidden] = task.leakage
        assert "outside every epsilon" in task.sentence
        seconds, sent = task.load("a", 1000)
        assert seconds > 0
        assert sent > 0
    assert all(one != other for one, other in combinations(tables.values(), 2))
    for hidden in (False, True):
        transfers = make_task(("a", "b"), mode="ot", hidden=hidden)
        assert transfers.leakage == tables["dh", hidden], "only how it is done differs"
    assert len({str(make_task(("a", "b"), mode=mode).agreement) for mode in align.MODES}) == len(align.MODES)


def test_the_forecast_of_bytes_is_about_what_is_sent():
    lists = {name: plain_keys(f"{n}" for n in range(600)) for name in "ab"}
    for mode, hidden in product(("ot", "dh", "helper"), (False, True)):
        task = make_task(("a", "b"), mode=mode, hidden=hidden)
        logs: dict = {}
        execute(task, lists, log=logs)
        for name in ("a", "b"):
            arrived = (fields for (sender, _), log in logs.items() if sender == name for _, fields in log)
            sent = sum(array.nbytes for fields in arrived for array in fields.values() if isinstance(array, np.ndarray))
            assert task.load(name, 600)[1] == pytest.approx(sent, rel=0.1)
