"""A participant that follows the form of every message and lies about what is in it: each cheat is played for real.

Where a check stops a cheat, the same cheat is also played without the check, so that the test shows what the check is
worth. Docs: ``docs/theory/active-messages.md``.
"""

from __future__ import annotations

from contextlib import nullcontext, suppress
from functools import reduce
from operator import xor

import numpy as np
import pytest

from colonnade.errors import DisagreementError, PeerStopped, ProtocolError
from colonnade.kinds.glm import programs as exchange, sides
from colonnade.kinds.glm.losses import NAMES, family_for
from colonnade.kinds.split import embedding_programs as embeddings
from colonnade.message_schema import receive_message
from colonnade.mpc.blinding import BlindingScalars
from colonnade.protocols import rows as listing
from colonnade.protocols.align import dh_psi, programs as aligning
from colonnade.protocols.moments import programs as moments
from colonnade.protocols.roles import COORDINATOR
from colonnade.protocols.rows import EqualityComparison, PairwiseKeys, agree_on_rows
from colonnade.protocols.session import RunResult
from colonnade.tables import flag
from colonnade.tables.columns import Number
from tests.support import malice, protocols as kit

NUMBERS = {"slopes", "scores", "share", "opening", "levels", "embeddings", "weights"}


class Lying:
    """A channel on which some messages say something else."""

    def __init__(self, link, say):
        self.link, self.say = link, say

    def send(self, kind, /, **fields):
        self.link.send(kind, **fields | self.say(kind, fields))

    def recv(self, *due):
        return self.link.recv(*due)


def run(task, programs, who=None, lie=lambda peer, kind, fields: {}):
    """Everybody's part in a thread; messages of ``who`` go through ``lie``. How all ended, and who sent what."""
    sent = set()

    def wrap(name, peer, link):
        def say(kind, fields):
            sent.add((name, kind))
            return lie(peer, kind, fields) if name == who else {}

        return Lying(link, say)

    return kit.outcomes(task, programs, wrap=wrap, timeout=120.0), sent


def stopped(ended, honest):
    """That every honest participant stopped, and the one sentence that all of them saw."""
    sentences = set()
    for name in honest:
        assert isinstance(ended[name], DisagreementError | PeerStopped), (name, ended[name])
        sentences.add(str(ended[name]).split(": ", 1)[-1] if isinstance(ended[name], PeerStopped) else str(ended[name]))
    assert any(isinstance(ended[name], DisagreementError) for name in honest)
    return sentences


def without_the_check(monkeypatch):
    monkeypatch.setattr(EqualityComparison, "require", lambda self, otherwise: None)
    monkeypatch.setattr(EqualityComparison, "__init__", lambda self, me, circle, held: None)


# --- rows: the coordinator calls lists equal that are not


def calls_all_equal(me, task):
    """A coordinator that compares nothing."""
    for owner in task.owners:
        receive_message(me.link(owner), owner, listing.ROWS)
    for owner in task.owners:
        me.link(owner).send("rows-verdict", problem="")


@pytest.mark.parametrize(
    ("module", "task"),
    [
        (moments, kit.moments_task()),
        (moments, kit.moments_task((2, 2))),
        (moments, kit.moments_task((1,) * 5, seats=("o0", "o1", "o2"))),
        (exchange, kit.exchange_task("alternating", ("bank", "mid", "shop"))),
    ],
    ids=["three owners", "two owners", "owners without a seat", "messages"],
)
@pytest.mark.parametrize("differs", [0, -1])
def test_a_coordinator_cannot_call_different_lists_equal(module, task, differs):
    tables = {name: kit.Rows(values) for name, values in kit.tables_of(task, 40).items()}
    odd = task.owners[differs]
    tables[odd] = kit.Rows(tables[odd].values, ids=[f"q{i:06d}" for i in range(40)])
    labels = np.arange(40) % 2.0 if module is exchange else None
    programs = kit.programs_of(module, task, tables, labels) | {COORDINATOR: lambda me: calls_all_equal(me, task)}
    ended, sent = run(task, programs)
    (sentence,) = stopped(ended, task.owners)
    assert "though the coordinator called their lists equal" in sentence
    assert "nothing was computed" in sentence
    assert not {kind for _, kind in sent} & NUMBERS


def test_owners_show_no_shares_of_lists_that_are_called_different():
    """Who has a key in common with another could try out whole lists on its share, in runs that it had refused."""
    task = kit.moments_task()
    tables = {name: kit.Rows(values) for name, values in kit.tables_of(task, 40).items()}
    tables["o1"] = kit.Rows(tables["o1"].values, ids=[f"q{i:06d}" for i in range(40)])
    ended, sent = run(task, kit.programs_of(moments, task, tables))
    assert not any(isinstance(end, RunResult) for end in ended.values())
    kinds = {kind for _, kind in sent}
    assert "compared" in kinds
    assert "compared-share" not in kinds


def test_without_the_check_rows_of_different_people_are_joined(monkeypatch):
    without_the_check(monkeypatch)
    task, rows = kit.moments_task(), np.zeros((40, 2))
    tables = {name: kit.Rows(rows, ids=[f"{name} {i}" for i in range(40)]) for name in task.owners}
    honest = {name: (lambda me, own=own: agree_on_rows(me, task, own)) for name, own in tables.items()}
    ended, _ = run(task, honest | {COORDINATOR: lambda me: calls_all_equal(me, task)})
    assert all(isinstance(end, RunResult) for end in ended.values())


def test_whoever_speaks_last_cannot_make_the_shares_cancel():
    """It sees the others' shares, and answers with their sum; its commitment came before."""
    task = kit.moments_task()

    def owner(me, held):
        circle = PairwiseKeys.of(me, task.owners, task.committee.seats)
        comparison = EqualityComparison(me, circle, held)
        comparison.require("they differ")

    def rushing(me):
        PairwiseKeys.of(me, task.owners, task.committee.seats)
        salt, share = bytes(32), bytes(32)
        for peer in ("o0", "o1"):
            me.link(peer).send("compared", commitment=listing._commitment("o2", share, salt))
            receive_message(me.link(peer), peer, listing.COMPARED)
        seen = [receive_message(me.link(peer), peer, listing.COMPARED_SHARE)["share"] for peer in ("o0", "o1")]
        fitting = reduce(xor, (int.from_bytes(each, "little") for each in seen)).to_bytes(32, "little")
        for peer in ("o0", "o1"):
            me.link(peer).send("compared-share", share=fitting, salt=salt)
            receive_message(me.link(peer), peer, listing.ALIKE)

    programs = {"o0": lambda me: owner(me, b"one list"), "o1": lambda me: owner(me, b"another"), "o2": rushing}
    ended, _ = run(task, programs | {COORDINATOR: lambda me: None})
    assert any(isinstance(ended[name], ProtocolError) and "o2" in str(ended[name]) for name in ("o0", "o1"))
    assert not any(isinstance(ended[name], RunResult) for name in ("o0", "o1"))


@pytest.mark.parametrize(("owners", "judges"), [(2, 2), (3, 3), (5, 3), (9, 5)])
def test_shares_cancel_exactly_where_all_hold_the_same(owners, judges):
    """No false alarm in 400 comparisons; a sum of 256 uniform bits is zero by chance with probability 2^-256."""
    names = [f"o{i}" for i in range(owners)]
    pairs = [(i, j) for i in range(owners) for j in range(i + 1, owners) if i < judges]
    chance = np.random.default_rng(owners)
    for trial in range(100):
        keys = {pair: chance.bytes(32) for pair in pairs}
        circles = [
            PairwiseKeys(
                tuple(names), tuple(names[:judges]), {names[i + j - at]: keys[i, j] for i, j in pairs if at in (i, j)}
            )
            for at in range(owners)
        ]
        held = [b"the same"] * owners
        assert not reduce(xor, (int.from_bytes(c.share(h), "little") for c, h in zip(circles, held, strict=True)))
        held[trial % owners] = b"something else"
        assert reduce(xor, (int.from_bytes(c.share(h), "little") for c, h in zip(circles, held, strict=True)))


# --- alignment


def lists_of(**people):
    return {name: kit.keys_of(list(held)) for name, held in people.items()}


def cheating_leader(monkeypatch, tell):
    """A leader ``a`` that tells ``b`` other matches, as ``tell`` makes them, and never says that anything is wrong."""
    real_tags, known = aligning._tags, {}

    def tags_of(me, values, *rest):
        if me.name == "a":
            known["values"] = values
        return real_tags(me, values, *rest)

    def joins(me, tags, shares, at_least):
        for other, own in tags.items():
            shares = shares ^ own.pads ^ aligning._receive_store(me, other, own.theirs)[own.tags]
        rows, index = aligning._common(shares)
        for other, own in tags.items():
            told, names = tell(known["values"], rows, index) if other == "b" else (rows, index)
            aligning.send_words(me.link(other), "matched", own.tags[told])
            aligning.send_words(me.link(other), "index", names)
        me.link(COORDINATOR).send("common", count=len(rows))
        return aligning.CommonMembers(rows, index)

    real_require = EqualityComparison.require

    def require(self, otherwise):
        with suppress(DisagreementError) if self._me.name == "a" else nullcontext():
            real_require(self, otherwise)

    monkeypatch.setattr(aligning, "_tags", tags_of)
    monkeypatch.setattr(aligning, "leader_joins", joins)
    monkeypatch.setattr(EqualityComparison, "require", require)


COMMON = [f"{n}" for n in range(6)]


@pytest.mark.parametrize("owners", ["abc", "abcd"])
def test_a_leader_cannot_join_rows_of_different_people(monkeypatch, owners):
    lists = lists_of(**{name: [*COMMON, *(f"{name}{i}" for i in range(place))] for place, name in enumerate(owners)})
    task = kit.align_task(tuple(owners), seats=("a", "b", "c"))
    programs = kit.align_programs(task, lists)
    cheating_leader(monkeypatch, lambda values, rows, index: (rows, index[[1, 0, *range(2, len(index))]]))
    ended, _ = run(task, programs)
    (sentence,) = stopped(ended, owners[1:])
    assert "nothing was spent" in sentence
    without_the_check(monkeypatch)
    ended, _ = run(task, programs)

    def named(owner):
        found = ended[owner].result
        rows = zip(found.index, found.rows.tolist(), strict=True)
        return {number.tobytes(): lists[owner].values[row] for number, row in rows}

    people = [named("b"), named("c")]
    assert sum(people[0][number] != people[1][number] for number in people[0]) == 2


def test_a_helper_cannot_join_rows_of_different_people():
    lists, task = lists_of(a=COMMON, b=COMMON, c=COMMON), kit.align_task(("a", "b", "c"), mode="helper")

    def turned(peer, kind, fields):
        return {"words": np.roll(fields["words"], 1, axis=0)} if (peer, kind) == ("b", "index") else {}

    ended, _ = run(task, kit.align_programs(task, lists), COORDINATOR, turned)
    (sentence,) = stopped(ended, task.owners)
    assert "nothing was spent" in sentence


@pytest.mark.parametrize("checked", [True, False])
def test_a_leader_does_not_learn_who_is_on_two_lists_of_three(monkeypatch, checked):
    """It names a person of its own to ``b``. Whether ``b`` holds that person must not show in how anybody ends.

    So beside the common people it asks whether ``b`` holds somebody whom ``c`` does not hold; as many are told as to
    all.
    """
    victim = kit.keys_of(["victim"]).values[0]
    task, ends = kit.align_task(("a", "b", "c")), {}

    def tell(values, rows, index):
        return np.append(rows[1:], [values.index(victim)]), index

    cheating_leader(monkeypatch, tell)
    if not checked:  # as it was before: nothing is compared, and an owner says at once that it never sent a tag
        without_the_check(monkeypatch)
        real = aligning.receive_matches

        def receive_matches(me, joiner, tags):
            found = real(me, joiner, tags)
            if (found.rows < 0).any():
                raise ProtocolError(f"{joiner} named people that {me.name} never sent")
            return found

        monkeypatch.setattr(aligning, "receive_matches", receive_matches)
    for holds in (False, True):
        extra = ["victim"] if holds else ["somebody"]
        lists = lists_of(a=[*COMMON, "victim"], b=[*COMMON, *extra, "x"], c=[*COMMON, "y", "z"])
        ended, _ = run(task, kit.align_programs(task, lists))
        ends[holds] = {name: isinstance(end, RunResult) for name, end in ended.items()}
        if checked:
            ends[holds] |= {"sentence": stopped(ended, ("b", "c"))}
    assert (ends[True] == ends[False]) == checked


def mixes_up(monkeypatch, victim, common):
    """An owner ``b`` that answers each point of the leader with the product of another one.

    Under the tag of the victim it stores the share of somebody common, and under that of the common one the share of
    the victim: if the leader holds the victim and luck has it, the common one is told to match by the victim's tag.
    """
    real_answer, real_shares = dh_psi._answer, aligning.zero_shares

    def answer(me, peer, secret, size):
        if me.name != "b":
            real_answer(me, peer, secret, size)
            return
        points = dh_psi._received(me, peer, "blinded", size)
        me.link(peer).send("blinded twice", points=np.roll(secret.multiply(points, peer), 1, axis=0))

    def shares(me, keys, secrets):
        swapped = {victim: common, common: victim}
        return real_shares(me, [swapped.get(key, key) if me.name == "b" else key for key in keys], secrets)

    monkeypatch.setattr(dh_psi, "_answer", answer)
    monkeypatch.setattr(aligning, "zero_shares", shares)


@pytest.mark.parametrize("own_blinds", [True, False])
def test_another_owner_does_not_learn_whom_the_leader_holds(monkeypatch, own_blinds):
    """``c`` does not hold the victim, so nobody but the leader may know that the leader does."""
    common, victim = kit.keys_of(["0", "victim"]).values
    task = kit.align_task(("a", "b", "c"))
    mixes_up(monkeypatch, victim, common)
    if not own_blinds:  # one for the whole list, as it was before
        fresh = BlindingScalars.generate.__func__
        monkeypatch.setattr(
            BlindingScalars,
            "generate",
            classmethod(lambda cls, count, stream: cls(fresh(cls, 1, stream)._scalars * count)),
        )
    real, matched = aligning.receive_matches, []

    def spy(me, joiner, own):
        found = real(me, joiner, own)
        if me.name == "b":
            matched.append(len(found.rows))
        return found

    monkeypatch.setattr(aligning, "receive_matches", spy)
    learned = {}
    for held in ("victim", "somebody"):
        matched.clear()
        lists = lists_of(a=["0", held], b=["0", "victim", "x"], c=["0", "y", "z"])
        run(task, kit.align_programs(task, lists))
        learned[held] = list(matched)
    assert learned == {"victim": [0] if own_blinds else [1], "somebody": [0]}


def test_made_up_keys_are_answered_and_padding_bounds_how_many():
    """What no alignment that tells members can prevent: a list of guesses is answered guess by guess."""
    guesses, held = [f"{n}" for n in range(40)], [f"{n}" for n in range(0, 40, 7)]
    lists, padded = lists_of(a=guesses, b=held), kit.align_task(("a", "b"), pad_to=50)
    ended, _ = run(padded, kit.align_programs(padded, lists))
    assert {lists["a"].values[row] for row in ended["a"].result.rows.tolist()} == set(lists["b"].values)
    longer = kit.align_programs(padded, lists)
    ended, _ = run(padded, longer, "a", lambda peer, kind, fields: {"rows": 200} if kind == "align" else {})
    assert isinstance(ended[COORDINATOR], ProtocolError)
    assert not isinstance(ended["b"], RunResult)


def test_a_hidden_alignment_does_not_find_wrong_slots():
    """The coordinator joins rows of different people, and nobody can see it: owners then count as people apart."""
    lists, task = lists_of(a=COMMON, b=COMMON, c=COMMON), kit.align_task(("a", "b", "c"), hidden=True)

    def turned(peer, kind, fields):
        return {"slots": np.roll(fields["slots"], 1)} if kind == "slots" and peer == "b" else {}

    ended, _ = run(task, kit.align_programs(task, lists), COORDINATOR, turned)
    at = {}
    for name in "ab":
        got = ended[name].result
        at[name] = {s: lists[name].values[r] for s, r in zip(got.slots.tolist(), got.rows.tolist(), strict=True)}
    assert sum(at["a"][slot] != at["b"][slot] for slot in at["a"]) == len(COMMON)


# --- messages with noise: different numbers for different parties


@pytest.mark.parametrize(
    ("scene", "who", "message", "field", "changed"),
    [
        ("exchange, alternating", "bank", ("mid", "slopes"), "values", lambda told: told + 1),
        ("exchange, gradient", "bank", ("shop", "slopes"), "values", lambda told: told + 1),
        ("exchange, alternating", "bank", ("mid", "fit"), "name", lambda told: "0" * 32),
        ("exchange, alternating", "shop", (COORDINATOR, "weights"), "values", lambda told: told + 1),
        ("exchange, gradient", "mid", ("shop", "weights"), "values", lambda told: told + 1),
        ("exchange, alternating", "bank", ("mid", "unfolded"), "weights", lambda told: told + 1),
        ("exchange, alternating", "bank", (COORDINATOR, "unfolded"), "weights", lambda told: told + 1),
        ("embeddings", "bank", ("mid", "labels"), "values", lambda told: 1 - np.minimum(told, 1)),
        ("embeddings in rounds", "bank", ("shop", "labels"), "values", lambda told: 1 - np.minimum(told, 1)),
    ],
)
def test_whoever_tells_different_parties_different_numbers_is_noticed(monkeypatch, scene, who, message, field, changed):
    """Also if it agrees with everybody about what was told: the others compare with each other too."""
    real = listing.compare_digests

    def agrees_with_everybody(me, everyone, heard, what):
        if me.name != who:
            real(me, everyone, heard, what)
            return
        for name in everyone:
            if name != who:
                me.link(name).send("heard-alike", **receive_message(me.link(name), name, listing.HEARD_ALIKE))

    for programs in (exchange, embeddings):
        monkeypatch.setattr(programs, "compare_digests", agrees_with_everybody)
    played = malice.SCENES[scene]()

    def lie(peer, kind, fields):
        return {field: changed(fields[field])} if (peer, kind) == message else {}

    ended, sent = run(played.task, played.programs, who, lie)
    (sentence,) = stopped(ended, [name for name in played.programs if name != who])
    assert sentence.startswith("participants were told different ")
    if message[1] in ("slopes", "fit"):
        assert not {name for name, kind in sent if kind == "weights"} - {who}


@pytest.mark.parametrize("field", ["weights", "factors"])
def test_released_weights_that_no_model_file_may_hold_are_refused_by_name(field):
    played = malice.SCENES["exchange, alternating"]()

    def lie(peer, kind, fields):
        if kind != "unfolded":
            return {}
        return {field: np.full_like(fields[field], 1.79e308) if field == "weights" else [1.79e308] * 2}

    ended, _ = run(played.task, played.programs, "bank", lie)
    for name in ("mid", "shop", COORDINATOR):
        assert isinstance(ended[name], ProtocolError | PeerStopped)
        assert "bank sent" in str(ended[name])


# --- whatever is sent, what a party tells moves no further than the theorem says


def hostile(count, bound, way, chance):
    """The largest numbers that are let in, in a few arrangements."""
    return (
        bound
        * (
            np.ones(count),
            chance.choice([-1.0, 1.0], count),
            np.eye(1, count)[0],
            np.zeros(count),
            np.sign(np.arange(count) - count / 2),
        )[way]
    )


def told_by(side, name, task, way, seed):
    """All that one party would tell, before noise, while the others send hostile numbers."""
    chance, bound = np.random.default_rng(seed), float(task.grid.real(np.array([task.bound]))[0])
    told = []
    for step in task.steps:
        here, there = (len(range(batch, task.rows, task.batches)) for batch in (step.batch, step.answer or 0))
        if name == task.active:
            told.append(side.slopes(step.batch))
            side.learn(step.answer)
            for place, peer in enumerate(task.passives):
                if step.answer is not None:
                    side.hear(peer, step.answer, hostile(there, bound, (way + place) % 5, chance))
        else:
            side.take(step.batch, hostile(here, bound, way, chance))
            if step.answer is not None:
                told.append(side.scores(step.answer))
    return np.concatenate(told)


def turned_around(rows, labels, low=0.0, high=1.0):
    """Rows and labels, and the same with the longest first row turned around and the other label."""
    longest = rows.copy()
    longest[0] *= (1 - 1e-9) / np.linalg.norm(longest[0])
    turned, flipped = longest.copy(), labels.copy()
    turned[0], flipped[0] = -longest[0], low + high - labels[0]
    return (longest, labels), (turned, flipped)


def moved(name, task, way, seed, *both):
    """How far all that one party tells moves between two tables."""
    told = []
    for rows, labels in both:
        held = sides.with_constant(rows, name, task)
        active = name == task.active
        side = sides.active_side(held, labels, task) if active else sides.PassiveParty(held, name, task)
        told.append(told_by(side, name, task, way, seed))
    return np.linalg.norm(told[0] - told[1])


@pytest.mark.parametrize("method", ["alternating", "gradient"])
@pytest.mark.parametrize("way", range(5))
def test_hostile_numbers_move_no_message_beyond_its_bound(method, way):
    task = kit.exchange_task(method, ("bank", "mid", "shop"), epochs=3, release=True)
    labels = np.random.default_rng(way).integers(0, 2, task.rows).astype(float)
    tables = kit.tables_of(task, task.rows, seed=way)
    for name in task.owners:
        found = moved(name, task, way, 7, *turned_around(tables[name], labels))
        assert found <= float(task.message_sensitivity(name))
        assert found > 0 or way in (0, 3)  # these push all scores to their clip, or nowhere


@pytest.mark.parametrize("method", ["alternating", "gradient"])
@pytest.mark.parametrize("family", NAMES)
def test_hostile_scores_move_no_slopes_of_any_family_beyond_their_bound(family, method):
    column = flag() if family in ("logistic", "svm") else Number(low=0.0 if family != "gamma" else 1.0, high=30.0)
    loss, rate = family_for(family, column), 0.0 if method == "alternating" else 1e-3
    task = kit.exchange_task(method, ("bank", "mid", "shop"), family=loss, learning_rate=rate, epochs=3)
    labels = np.random.default_rng(8).choice([loss.low, loss.high], task.rows)
    both = turned_around(kit.tables_of(task, task.rows)["bank"], labels, loss.low, loss.high)
    assert 0 < moved("bank", task, 1, 9, *both) <= float(task.message_sensitivity("bank"))
