"""Studies in lanes: whatever is lost on the way, the sums are those of the plain join, and nothing is opened before."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from colonnade.errors import (
    AlignmentError,
    CapacityError,
    ConnectError,
    DataError,
    DisagreementError,
    PeerLost,
    PeerStopped,
    PrivacyError,
    ProtocolError,
    ShareError,
    StudyError,
)
from colonnade.kinds.polynomial import programs as polynomial
from colonnade.kinds.tables.marginals import programs as marginals
from colonnade.mpc.shamir import interpolate
from colonnade.protocols.lanes import head, lane
from colonnade.protocols.lanes.arbiter import MOST_ATTEMPTS, Lane
from colonnade.protocols.lanes.lane import Laned, LaneTask, is_loss, play_lane, why_not
from colonnade.protocols.lanes.partitions import Partitions
from colonnade.protocols.lanes.workers import Workers, _digest
from colonnade.protocols.moments import programs as moments
from colonnade.protocols.roles import COORDINATOR
from colonnade.protocols.session import spare
from tests.support import protocols as kit
from tests.support.errors import raises

from .crews import LATE, Held, Study, ThreadCrew, common, laned

EXPRESSIONS = ("o0.c0 * o1.c0 * 3 + o0.c0^2", "o1.c0 * o0.c1 - 2 * o1.c0 + 5", "o0.c1")


def drawn_people(rng, people, chance, name):
    """Each person with this chance, the first always, and one whom nobody else has, in any order."""
    own = [f"p{person}" for person in range(people) if not person or rng.random() < chance] + [f"of {name}"]
    return [own[place] for place in rng.permutation(len(own))]


def numbers_held(task, rng, people, chance):
    """Rows of numbers, well within their bounds."""
    held = {}
    for block in getattr(task, "holdings", None) or task.blocks:
        own, width = drawn_people(rng, people, chance, block.owner), len(block.columns)
        held[block.owner] = Held(own, rng.uniform(-1, 1, (len(own), width)) / (2 * width))
    return held


def grouped_held(task, rng, people, chance):
    """Rows of :func:`kit.grouped_moments_task`."""
    held = {}
    for name in task.owners:
        own = drawn_people(rng, people, chance, name)
        held[name] = Held(own, kit.grouped_rows(rng, len(own)))
    return held


def codes_held(task, rng, people, chance):
    """Codes of :func:`kit.marginals_task`."""
    held = {}
    for name in task.owners:
        own, sizes = drawn_people(rng, people, chance, name), [task.sizes[place] for place in task.held_by(name)]
        held[name] = Held(own, rng.integers(0, sizes, (len(own), len(sizes))).astype(float))
    return held


def released(study):
    """What everybody opened, all the same, without its noise."""
    with pytest.MonkeyPatch.context() as patch:
        drawn = kit.noise_drawn(patch, study.programs)
        kit.nearest(patch)
        results = study.results()
    owners = study.laned.task.owners
    assert len(drawn) == len(owners)
    assert set(results) == {*owners, COORDINATOR}
    opened = [np.asarray(result.opened) for result in results.values()]
    assert all(np.array_equal(one, opened[0]) for one in opened)
    return opened[0] - sum(drawn)


def plain_moments(task, held):
    rows = {name: np.rint(values * task.gamma).astype(np.int64) for name, values in common(held).items()}
    if task.hidden:
        rows = {name: np.column_stack([values, np.ones(len(values), np.int64)]) for name, values in rows.items()}
    return moments.reference(rows, task)


@st.composite
def interrupted(draw, names, partitions):
    """How many workers everybody has, and which of them die when."""
    workers = {name: draw(st.integers(1, 3)) for name in names}
    lanes = st.builds(Lane, st.integers(0, partitions - 1), st.integers(1, 3))
    deaths = st.dictionaries(st.tuples(st.sampled_from(names), lanes), st.integers(0, 60), max_size=4)
    return workers, draw(deaths)


MOMENTS = {
    "three seats": lambda: kit.moments_task((2, 1, 2)),
    "two owners": lambda: kit.moments_task((2, 3)),
    "an owner without a seat": lambda: kit.moments_task((1, 2, 1, 1), ("o3", "o1", COORDINATOR)),
    "four seats": lambda: kit.moments_task((1, 1, 2, 1), law="discrete-gaussian"),
    "active": lambda: kit.active(kit.moments_task((2, 1, 2))),
    "active, two owners": lambda: kit.active(kit.moments_task((2, 3), block_rows=3)),
    "active, four seats": lambda: kit.active(kit.moments_task((1, 1, 1, 2))),
}


@pytest.mark.parametrize("which", MOMENTS)
@settings(max_examples=6)
@given(data=st.data(), partitions=st.sampled_from([1, 2, 4, 8]), people=st.integers(1, 30), seed=st.integers(0, 99))
def test_second_moments_are_those_of_the_plain_join(which, data, partitions, people, seed):
    task, rng = MOMENTS[which](), np.random.default_rng(seed)
    held = numbers_held(task, rng, people, 0.8)
    plan = laned(task, partitions, mode=data.draw(st.sampled_from(["helper", "helper", "dh"])))
    workers, deaths = data.draw(interrupted(plan.participants, partitions))
    study = Study(plan, moments, held, workers, deaths)
    assert np.array_equal(released(study), plain_moments(task, held))


@pytest.mark.parametrize("checked", [False, True], ids=["plain", "active"])
@settings(max_examples=6)
@given(data=st.data(), owners=st.integers(2, 3), people=st.integers(0, 12), seed=st.integers(0, 99))
def test_hidden_members_are_those_of_the_plain_join(checked, data, owners, people, seed):
    task, rng = kit.hidden_moments_task(owners, block_rows=16), np.random.default_rng(seed)
    task = kit.active(task) if checked else task
    held = grouped_held(task, rng, people, 0.7)
    plan = laned(task, data.draw(st.sampled_from([2, 4])), mode="helper")
    workers, deaths = data.draw(interrupted(plan.participants, plan.partitions))
    study = Study(plan, moments, held, workers, deaths)
    assert np.array_equal(released(study), plain_moments(task, held))


MARGINALS = {
    "three seats": lambda: kit.marginals_task(),
    "two owners": lambda: kit.marginals_task(((3, 2), (2,)), label=0),
    "active": lambda: kit.active(kit.marginals_task(((2,), (3,), (2, 2)))),
    "hidden": lambda: kit.marginals_task(((3,), (2, 2)), hidden=True),
    "hidden, active": lambda: kit.active(kit.marginals_task(((3,), (2, 2)), hidden=True)),
}


@pytest.mark.parametrize("which", MARGINALS)
@settings(max_examples=4)
@given(data=st.data(), partitions=st.sampled_from([2, 4]), people=st.integers(1, 20), seed=st.integers(0, 99))
def test_marginals_are_those_of_the_plain_join(which, data, partitions, people, seed):
    task, rng = MARGINALS[which](), np.random.default_rng(seed)
    held = codes_held(task, rng, people, 0.8)
    plan = laned(task, partitions, mode="helper")
    workers, deaths = data.draw(interrupted(plan.participants, partitions))
    study = Study(plan, marginals, held, workers, deaths)
    codes = {name: values.astype(np.int64) for name, values in common(held).items()}
    if task.hidden:
        codes = {name: np.column_stack([values, np.ones(len(values), np.int64)]) for name, values in codes.items()}
    assert np.array_equal(released(study), marginals.reference(codes, task))


POLYNOMIALS = {
    "two owners": lambda: kit.polynomial_task((2, 1), EXPRESSIONS, clip=2.0),
    "three owners": lambda: kit.polynomial_task((2, 1, 1), (*EXPRESSIONS, "o0.c0 * o1.c0 * o2.c0"), clip=2.0),
    "active": lambda: kit.active(kit.polynomial_task((2, 1, 1), (*EXPRESSIONS, "o0.c0 * o1.c0 * o2.c0"), clip=2.0)),
}


@pytest.mark.parametrize("which", POLYNOMIALS)
@settings(max_examples=4)
@given(data=st.data(), partitions=st.sampled_from([2, 4]), people=st.integers(1, 20), seed=st.integers(0, 99))
def test_polynomials_are_those_of_the_plain_join(which, data, partitions, people, seed):
    task, rng = POLYNOMIALS[which](), np.random.default_rng(seed)
    held = numbers_held(task, rng, people, 0.8)
    plan = laned(task, partitions, mode="helper")
    workers, deaths = data.draw(interrupted(plan.participants, partitions))
    study = Study(plan, polynomial, held, workers, deaths)
    plain = polynomial.reference(kit.integers(task, common(held)), task)
    assert released(study).tolist() == plain


@pytest.mark.parametrize(("mode", "padded"), [("ot", None), ("dh", 60), ("helper", 60)])
def test_every_mode_of_alignment_and_padded_lists(mode, padded):
    task = kit.moments_task((2, 1))
    held = numbers_held(task, np.random.default_rng(3), 40, 0.7)
    study = Study(laned(task, 2, mode=mode, pad_to=padded), moments, held)
    assert np.array_equal(released(study), plain_moments(task, held))
    assert len(set(study.keys.values())) == 1
    assert COORDINATOR not in study.keys


# --- what lanes leave


def small(partitions=4, people=30, widths=(2, 1, 2), seed=1, **changes):
    task = kit.moments_task(widths)
    task = kit.active(task) if changes.pop("checked", False) else task
    held = numbers_held(task, np.random.default_rng(seed), people, 0.8)
    settings_ = {"mode": "helper", **changes.pop("aligning", {})}
    return Study(laned(task, partitions, **settings_), moments, held, **changes)


@pytest.mark.parametrize("checked", [False, True], ids=["plain", "active"])
def test_shares_of_two_attempts_differ_and_are_of_the_same_sums(checked):
    """A worker dies when it is done, so that all seats have shares of both attempts; mixed, they are of nothing."""
    study = small(partitions=2, checked=checked, deaths={("o1", Lane(0)): LATE})
    assert np.array_equal(released(study), plain_moments(study.laned.task, study.held))
    task, seats = study.laned.task, study.laned.task.committee.seats
    found = [{seat: study.lanes.results[seat, Lane(0, attempt)].shares for seat in seats} for attempt in (1, 2)]
    assert all(not np.array_equal(found[0][seat].values, found[1][seat].values) for seat in seats)
    mixed = {**found[0], "o1": found[1]["o1"]}
    sums = [_joined(task, shares) for shares in (*found, mixed)]
    assert np.array_equal(sums[0], sums[1])
    assert not np.array_equal(sums[0], sums[2])


def _joined(task, shares):
    """The sums of shares, one of each seat."""
    points = {task.committee.point(seat): shares[seat].values for seat in list(shares)[: task.opened_degree + 1]}
    return interpolate(task.committee.system, points, task.opened_degree)


def test_every_attempt_is_aligned_in_a_context_of_its_own(monkeypatch):
    """A message of one run of ``ot`` must be no message of another."""
    study, real, runs = small(partitions=2, deaths={("o1", Lane(0)): LATE}), lane.align.owner, []

    def noted(me, keys, aligning, *, run, people):
        runs.append((me.name, run))
        return real(me, keys, aligning, run=run, people=people)

    monkeypatch.setattr(lane.align, "owner", noted)
    study.results()
    owners = study.laned.task.owners
    assert sorted(runs) == sorted(
        (name, study.laned.run_of(each)) for name in owners for each in (Lane(0), Lane(0, 2), Lane(1))
    )
    assert len(set(runs)) == 3 * len(owners)
    assert study.laned.run not in {run for _, run in runs}


def test_a_lane_without_people_has_sums_of_the_right_form():
    study = small(partitions=16, people=2)
    assert np.array_equal(released(study), plain_moments(study.laned.task, study.held))
    empty = [sums for sums in study.lanes.results.values() if sums.rows == 0]
    assert len(empty) > 4 * 10
    for sums in empty:
        if sums.shares is not None:
            assert sums.shares.degree == study.laned.task.opened_degree
            assert sums.shares.shape == (study.laned.task.entries,)
        if sums.own is not None:
            assert not sums.own.any()


def held_otherwise(monkeypatch, who, partition, attempt=0, workers=None):
    """Let one head believe that another attempt of a partition counts, or one of other workers."""
    real = Workers.what_counts

    def other(self):
        if self._hand.name == who:
            self._followed.kept[partition] += attempt
            self._kept_with[partition] = workers or self._kept_with[partition]
        return real.fget(self)

    monkeypatch.setattr(Workers, "what_counts", property(other))


@pytest.mark.parametrize("other", [{"attempt": 1}, {"workers": bytes(32)}], ids=["attempt", "workers"])
@pytest.mark.parametrize("checked", [False, True], ids=["plain", "active"])
@pytest.mark.parametrize("who", ["o1", "o0"])
def test_a_seat_that_holds_another_lane_ends_the_study_before_anything_is_opened(checked, who, other, monkeypatch):
    study, opened = small(checked=checked), []
    held_otherwise(monkeypatch, who, 2, **other)
    # The coordinator has no seat here: it has nothing to open, and waits for what others do.
    monkeypatch.setattr(moments, "release", lambda me, sums, *rest: sums.shares and opened.append(me.name))
    ended = study.outcomes()
    assert not opened
    assert all(isinstance(one, DisagreementError | PeerStopped | PeerLost) for one in ended.values())
    found = [str(one) for one in ended.values() if isinstance(one, DisagreementError)]
    assert found
    assert all("different lanes that count" in sentence for sentence in found)
    study.check_threads()


def test_an_owner_without_a_seat_compares_too(monkeypatch):
    """It was told to keep another attempt than the seats: what it adds is no part of what they hold."""
    task = kit.moments_task((1, 2, 1, 1), ("o3", "o1", COORDINATOR))
    held = numbers_held(task, np.random.default_rng(1), 20, 0.9)
    study = Study(laned(task, 2, mode="helper"), moments, held)
    held_otherwise(monkeypatch, "o2", 1, attempt=1)
    ended = study.outcomes()
    assert all(isinstance(one, DisagreementError | PeerStopped | PeerLost) for one in ended.values())
    assert any("different lanes that count" in str(one) for one in ended.values())
    study.check_threads()


def test_nothing_can_be_revealed_in_a_lane():
    task = kit.moments_task((2, 1))
    assert LaneTask.of(task).openings == {}
    held = numbers_held(task, np.random.default_rng(1), 20, 1.0)

    class Opening:
        @staticmethod
        def added_up(me, summing, task, table=None, *, part=False):
            sums = moments.added_up(me, summing, task, table, part=part)
            moments.release(summing, sums, task, None if table is None else np.zeros(task.entries, np.int64))
            return sums

    study = Study(laned(task, 2, mode="helper"), Opening, held)
    ended = study.outcomes()
    assert any(isinstance(one, PrivacyError) for one in ended.values())
    assert all(isinstance(one, PrivacyError | PeerStopped | PeerLost) for one in ended.values())


def test_no_seat_of_a_lane_is_spare():
    task = kit.moments_task((1, 1, 1, 1))
    assert spare(task) == task.owners
    assert spare(LaneTask.of(task)) == ()


# --- how studies end


def test_a_partition_that_is_always_lost_ends_the_study():
    deaths = {("o2", Lane(1, attempt)): 3 for attempt in range(1, MOST_ATTEMPTS + 1)}
    study = small(deaths=deaths)
    ended = study.outcomes()
    assert isinstance(ended[COORDINATOR], PeerLost)
    assert "8 times" in str(ended[COORDINATOR])
    assert all(isinstance(one, PeerLost | PeerStopped) for one in ended.values())
    study.check_threads()


def test_what_is_no_loss_ends_the_study_for_all():
    study = small()

    class Failing:
        @staticmethod
        def added_up(me, summing, task, table=None, *, part=False):
            if me.name == "o1":
                raise DataError("a cell that only this party may know of")
            return moments.added_up(me, summing, task, table, part=part)

    study = Study(study.laned, Failing, study.held)
    ended = study.outcomes()
    assert isinstance(ended["o1"], DataError)
    others = [one for name, one in ended.items() if name != "o1"]
    assert all(isinstance(one, PeerStopped) for one in others)
    assert not any("cell" in str(one) for one in others)
    study.check_threads()


def test_a_head_that_is_lost_ends_the_study():
    study = small()

    def leaves(me):
        raise PeerLost("its machine is gone")

    ended = study.outcomes(o2=leaves)
    assert all(isinstance(one, PeerLost | PeerStopped) for one in ended.values())
    study.check_threads()


def test_a_failed_check_of_a_lane_is_no_loss(monkeypatch):
    study, real = small(checked=True), moments.added_up

    def false(me, summing, task, table=None, *, part=False):
        sums = real(me, summing, task, table, part=part)
        if me.hand.seated and sums.rows:
            summing.hand.claims.zero(sums.shares)  # they are not
        return sums

    monkeypatch.setattr(moments, "added_up", false)
    ended = study.outcomes()
    assert any(isinstance(one, ShareError) for one in ended.values())
    assert all(isinstance(one, ShareError | PeerStopped | PeerLost) for one in ended.values())


def test_too_few_people_are_found_when_all_lanes_are_known():
    study = small(people=10, aligning={"at_least": 11})
    ended = study.outcomes()
    assert any(isinstance(one, AlignmentError) for one in ended.values())
    sentences = {str(one) for one in ended.values() if isinstance(one, AlignmentError)}
    assert all("only" in one and "nothing was opened" in one for one in sentences)
    assert not any(isinstance(one, kit.Played) for one in ended.values())


def test_more_people_than_the_study_allows_end_it():
    task = kit.moments_task((2, 1), rows_at_most=25)
    held = numbers_held(task, np.random.default_rng(1), 40, 1.0)
    study = Study(laned(task, 16, mode="helper"), moments, held, dict.fromkeys(("o0", "o1", COORDINATOR), 1))
    ended = study.outcomes()
    assert len(study.lanes.rooms) < 16, "fifteen of forty people in the last of them are less likely than 2^-25"
    found = [one for one in ended.values() if isinstance(one, CapacityError)]
    assert found
    assert all("raise rows_at_most" in str(one) for one in found)
    assert not any(isinstance(one, kit.Played) for one in ended.values())


def test_slots_of_one_lane_show_that_all_are_too_many():
    task = kit.hidden_moments_task(2, block_rows=16, rows_at_most=100)
    held = grouped_held(task, np.random.default_rng(1), 20, 1.0)
    study = Study(laned(task, 8, mode="helper"), moments, held, dict.fromkeys(("o0", "o1", COORDINATOR), 1))
    found = [one for one in study.outcomes().values() if isinstance(one, CapacityError)]
    assert found
    assert all("lists of all parties together" in str(one) for one in found)
    assert len(study.lanes.rooms) <= 2
    study.check_threads()
    with raises(CapacityError, "CA030"):
        laned(task, 8, mode="helper", pad_to=20)  # before anybody has a part in it


def test_a_table_that_does_not_fit_its_partitions_ends_the_study_before_any_lane(monkeypatch):
    study = small(people=30)
    monkeypatch.setattr("colonnade.protocols.align.task.filled_length", lambda people, partitions: 3)
    ended = study.outcomes()
    assert any(isinstance(one, CapacityError) for one in ended.values())
    assert all(
        "does not take part" in str(one) for one in ended.values() if isinstance(one, PeerStopped)
    )  # nobody else learns why
    assert not study.lanes.rooms


def test_a_list_longer_than_padded_ones_ends_the_study_before_any_lane():
    study = small(people=30, aligning={"pad_to": 20})
    assert all(len(held.people) > 20 for held in study.held.values())
    ended = study.outcomes()
    assert any(isinstance(one, CapacityError) for one in ended.values())
    assert all("does not take part" in str(one) for one in ended.values() if isinstance(one, PeerStopped))
    assert not study.lanes.rooms


def test_owners_that_were_sent_different_keys_miss_people_and_count_nobody_twice(monkeypatch):
    study, real = small(partitions=2), head._spread

    def another(me, plan):
        found = real(me, plan)
        return Partitions(2, bytes(32)) if me.name == "o1" else found

    monkeypatch.setattr(head, "_spread", another)
    sums = released(study)
    spreads = [Partitions(2, study.keys[name]) for name in ("o0", "o1")]
    for held in study.held.values():
        values = held.table.keys.values
        same = np.flatnonzero(spreads[0].of(values) == spreads[1].of(values))
        held.people, held.values = [held.people[place] for place in same], held.values[same]
    counted = common(study.held)["o0"]
    assert 0 < len(counted) < 30
    assert np.array_equal(sums, plain_moments(study.laned.task, study.held))


def test_budget_is_spent_before_the_first_lane():
    study, order = small(partitions=2), []
    room = kit.Room(study.laned.participants)

    def part(name, program):
        place = room.place(name)
        before = None if name == COORDINATOR else lambda: order.append((name, len(study.lanes.rooms)))
        return kit.play(place, study.laned.task, program, before_sharing=before)

    owners = study.laned.task.owners
    programs = {name: study._owner(name) for name in owners} | {COORDINATOR: study._coordinator}
    with kit.ThreadPoolExecutor(len(programs)) as pool:
        list(pool.map(part, programs, programs.values()))
    assert sorted(name for name, _ in order) == sorted(owners)
    assert all(rooms == 0 for _, rooms in order)


# --- heads


def test_owners_with_other_rules_of_partitions_stop_before_any_lane():
    study = small()

    def program(me):
        for name in ("o1", "o2"):
            me.link(name).send("partition-key", key=bytes(32), check=bytes(32))
        me.link(COORDINATOR).recv("lanes", 1 << 20)

    ended = study.outcomes(o0=program)
    found = [str(one) for one in ended.values() if isinstance(one, ProtocolError)]
    assert found
    assert all("other rules" in sentence for sentence in found)
    assert not study.lanes.rooms
    study.check_threads()


def test_signs_of_life_are_no_orders():
    """Heads that speak all the time: every wait is longer than their patience."""
    study = small(partitions=2, people=12)
    study.beat = 1e-4
    assert np.array_equal(released(study), plain_moments(study.laned.task, study.held))


@pytest.mark.parametrize(
    "field",
    [
        {"what": "kept"}, {"what": 3}, {"partition": 4}, {"partition": -1}, {"partition": True}, {"attempt": 0},
        {"attempt": MOST_ATTEMPTS + 1}, {"rows": -1}, {"rows": 1 << 60}, {"worker": "text"}, {"worker": bytes(1 << 14)},
        {"more": 1},
    ],
)  # fmt: skip
def test_malformed_words_are_refused_by_name(field):
    study = small()

    def program(me):
        said = {"what": "here", "partition": 0, "attempt": 1, "rows": 0, "worker": b""}
        me.link(COORDINATOR).send("lane", **said | field)
        return study._owner("o1")(me)

    ended = study.outcomes(o1=program)
    assert isinstance(ended[COORDINATOR], ProtocolError)
    assert "o1 sent" in str(ended[COORDINATOR])
    study.check_threads()


@pytest.mark.parametrize(
    "field",
    [
        {"what": "here"}, {"partition": 4}, {"attempt": 0}, {"hub": -1}, {"hub": 1}, {"workers": []},
        {"workers": [b"", b"", b"", "x"]}, {"workers": [bytes(1 << 14)] * 4}, {"more": 1},
    ],
)  # fmt: skip
def test_malformed_orders_are_refused_by_name(field):
    study = small()

    def program(me):
        told = {"what": "meet", "partition": 0, "attempt": 1, "hub": 0, "workers": [b""] * 4}
        for name in study.laned.task.owners:
            me.link(name).send("lanes", **told | field)
        return study._coordinator(me)

    ended = study.outcomes(**{COORDINATOR: program})
    found = [str(one) for one in ended.values() if isinstance(one, ProtocolError)]
    assert found
    assert all("coordinator" in sentence for sentence in found)
    study.check_threads()


def test_a_hub_that_the_study_does_not_name_is_refused():
    plan = small().laned
    told = {"what": "meet", "partition": 0, "attempt": 1, "hub": plan.hubs, "workers": [b""] * 4}
    with raises(ProtocolError, "MS037"):
        head._order(told, plan)
    assert head._order(told | {"hub": plan.hubs - 1}, plan).hub == plan.hubs - 1


class Word:
    """An owner's head that says something of its own to the coordinator, and then what it should."""

    def __init__(self, study, name, *words):
        self.study, self.name, self.words = study, name, words

    def __call__(self, me):
        for word in self.words:
            head._say(me.link(COORDINATOR), *word)
        return self.study._owner(self.name)(me)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([("over",)], "ended before"),
        ([("done", Lane(1), 7)], "nobody has met"),
        ([("here", Lane(1, 2))], "that there is not"),
        ([("lost", Lane(0)), ("lost", Lane(0))], "said all before"),
    ],
)
def test_an_owner_that_says_what_does_not_fit_ends_the_study(words, sentence):
    study = small()
    ended = study.outcomes(o1=Word(study, "o1", *words))
    assert isinstance(ended[COORDINATOR], ProtocolError)
    assert sentence in str(ended[COORDINATOR])
    assert not any(isinstance(one, kit.Played) for one in ended.values())
    study.check_threads()


@pytest.mark.parametrize(
    ("what", "lane", "sentence"),
    [
        ("over", None, "ended before"),
        ("kept", Lane(0), "does not hold"),
        ("again", Lane(1, 3), "was not lost"),
        ("meet", Lane(3), "not ready"),
    ],
)
def test_a_coordinator_that_orders_what_does_not_fit_is_left(what, lane, sentence):
    study = small(workers={"o0": 1, "o1": 1, "o2": 1})

    def program(me):
        for name in study.laned.task.owners:
            head._tell(me.link(name), study.laned, what, lane)
        return study._coordinator(me)

    ended = study.outcomes(**{COORDINATOR: program})
    found = [str(one) for one in ended.values() if isinstance(one, ProtocolError)]
    assert found
    assert all(sentence in one for one in found)
    study.check_threads()


def test_a_coordinator_that_keeps_a_lane_for_one_owner_only_is_found_out():
    """It tells o0 that a lane is lost, which the others are told is kept: nobody waits, and nothing is opened."""
    study = small(partitions=1, workers={"o0": 1, "o1": 1, "o2": 1})
    real = head._tell

    def two_faced(link, plan, what, lane=None, hub=0, introductions=None):
        if what in ("kept", "over") and link is sides["o0"]:
            what, lane = ("again", Lane(0, 2)) if what == "kept" else ("still", None)
        real(link, plan, what, lane, hub, introductions)

    sides = {}

    def program(me):
        sides.update({name: me.link(name) for name in study.laned.task.owners})
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(head, "_tell", two_faced)
            return study._coordinator(me)

    ended = study.outcomes(**{COORDINATOR: program})
    assert not any(isinstance(one, kit.Played) for one in ended.values())


def test_workers_of_another_run_under_the_name_of_an_owner_are_refused():
    """The coordinator introduces somebody else as the worker of o1, and tells o1 so."""
    study, real, sides = small(partitions=1), head._tell, {}

    def two_faced(link, plan, what, lane=None, hub=0, introductions=None):
        if introductions and link is sides["o1"]:
            introductions = {**introductions, "o1": b"a worker of o1 in another run"}
        real(link, plan, what, lane, hub, introductions)

    def program(me):
        sides.update({name: me.link(name) for name in study.laned.task.owners})
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(head, "_tell", two_faced)
            return study._coordinator(me)

    ended = study.outcomes(**{COORDINATOR: program})
    assert isinstance(ended["o1"], ProtocolError)
    assert "another worker in the name of o1" in str(ended["o1"])
    assert not any(isinstance(one, kit.Played) for one in ended.values())


def test_a_digest_of_introductions_tells_names_from_words():
    digests = [_digest(each) for each in ({"a": b"bc"}, {"ab": b"c"}, {"a": b"b", "c": b""}, {"a": b"", "c": b"b"})]
    assert len(set(digests)) == len(digests)
    assert _digest({"b": b"2", "a": b"1"}) == _digest({"a": b"1", "b": b"2"})


def test_a_crew_that_fails_ends_the_study_for_all(monkeypatch):
    study = small()

    def broken(self):
        if self.name == "o2":
            raise OSError("no more workers")
        return self.events.get()

    monkeypatch.setattr(ThreadCrew, "event", broken)
    ended = study.outcomes()
    assert isinstance(ended["o2"], OSError)
    assert all(isinstance(ended[name], PeerStopped) for name in ("o0", "o1", COORDINATOR))
    study.check_threads()


def test_a_long_split_hears_that_the_study_has_ended():
    study, heard = small(), threading.Event()

    def program(me):
        def split(spread, pulse):
            heard.set()
            while True:  # as a split that never ends would
                pulse()

        return head.owner(me, study.laned, moments, study.crew("o0", None), split, beat=1e-3)

    def leaves(me):
        assert heard.wait(60)
        raise DataError("something of its own")

    ended = study.outcomes(o0=program, o1=leaves)
    assert isinstance(ended["o0"], PeerStopped)
    study.check_threads()


def test_sums_are_asked_for_when_all_lanes_are_kept():
    workers = Workers(None, None, 2)
    with raises(ValueError, "VA138"):
        workers.total  # noqa: B018


@pytest.mark.parametrize("error", [PeerLost("gone"), PeerStopped("it gave up"), ConnectError("no hub")])
def test_losses(error):
    assert is_loss(error)


@pytest.mark.parametrize("error", [ShareError("x"), ProtocolError("x"), DataError("x"), KeyError("x")])
def test_what_is_no_loss(error):
    assert not is_loss(error)


# --- what cannot be done in lanes


@pytest.mark.parametrize(
    ("task", "why"),
    [
        (kit.gradients_task, "in rounds"),
        (kit.directions_task, "in rounds"),
        (lambda: kit.scores_task(3), "does not add up its people once"),
        (kit.exchange_task, "no committee"),
        (lambda: kit.active(kit.moments_task(), inputs="covert"), "try again"),
        (lambda: kit.active(kit.moments_task(), inputs="proven"), "proofs are counted"),
    ],
)
def test_other_tasks_say_why_not(task, why):
    assert why in why_not(task())
    with raises(StudyError, "ST455"):
        Laned(task(), kit.align_task(("a", "b"), partitions=2), bytes(32))


def test_fuzzy_keys_have_no_partitions():
    task = kit.moments_task((1, 1))
    with raises(StudyError, "ST429"):
        laned(task, 2, mode="fuzzy")


def test_owners_have_tables_and_the_coordinator_has_none():
    study = small()
    with raises(ValueError, "VA136"):
        play_lane(kit.Room(["o0"]).place("o0"), study.laned, Lane(0), moments)
