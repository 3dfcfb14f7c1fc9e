"""Studies in lanes: whatever is lost on the way, the sums are those of the plain join, and nothing is opened before."""

from __future__ import annotations

import threading
from dataclasses import replace
from math import isqrt

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from colonnade.errors import (
    AlignmentError,
    CapacityError,
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
from colonnade.kinds.tables import programs as marginals
from colonnade.kinds.tables.task import Marginals
from colonnade.mpc.shamir import reconstruct
from colonnade.mpc.verification.claims import ShareClaims
from colonnade.mpc.verification.input_proofs import MOST_PROOFS, InputProofs, InputProver
from colonnade.protocols.lanes import lane as laning
from colonnade.protocols.lanes.arbiter import MOST_ATTEMPTS, LaneAttempt
from colonnade.protocols.lanes.lane import LanePlan, LaneTask, LaneWorkers, _digest, most_rows, run_lane
from colonnade.protocols.lanes.partitions import Partitions
from colonnade.protocols.moments import programs as moments
from colonnade.protocols.moments.programs import OwnMoments
from colonnade.protocols.moments.task import Moments
from colonnade.protocols.roles import COORDINATOR
from colonnade.protocols.session import spare_owners
from tests.support import protocols as kit
from tests.support.errors import raises, refused

from .crews import LATE, Held, Killed, Study, ThreadCrew, common, laned

EXPRESSIONS = ("o0.c0 * o1.c0 * 3 + o0.c0^2", "o1.c0 * o0.c1 - 2 * o1.c0 + 5", "o0.c1")
OF_THREE = (*EXPRESSIONS, "o0.c0 * o1.c0 * o2.c0")


def held_of(task, rng, people, chance):
    """Each person with this chance, the first always, and one whom nobody else has, in any order; rows of each."""
    held = {}
    for name in task.owners:
        own = [f"p{person}" for person in range(people) if not person or rng.random() < chance] + [f"of {name}"]
        if hasattr(task, "held_by"):
            sizes = [task.sizes[place] for place in task.held_by(name)]
            values = rng.integers(0, sizes, (len(own), len(sizes))).astype(float)
        elif getattr(task, "hidden", False):
            values = kit.grouped_rows(rng, len(own))
        else:
            (width,) = (len(b.columns) for b in getattr(task, "holdings", None) or task.blocks if b.owner == name)
            values = rng.uniform(-1, 1, (len(own), width)) / (2 * width)
        held[name] = Held([own[place] for place in rng.permutation(len(own))], values)
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


def plain(study):
    """The sums over people whom all hold."""
    task, rows = study.laned.task, common(study.held)
    whole = kit.integers(task, rows) if hasattr(task, "gamma") else {o: v.astype(np.int64) for o, v in rows.items()}
    if getattr(task, "hidden", False):
        whole = {name: np.column_stack([values, np.ones(len(values), np.int64)]) for name, values in whole.items()}
    return np.asarray(study.programs.reference(whole, task))


NO_SEAT = kit.moments_task((1, 2, 1, 1), ("o3", "o1", COORDINATOR))


def proven(task):
    """Everybody may deviate, and owners prove that their rows keep their bounds."""
    return kit.active(task, inputs="proven")


TASKS = {
    "moments, three seats": (moments, lambda: kit.moments_task((2, 1, 2))),
    "moments, no seat": (moments, lambda: kit.moments_task((1, 2, 1, 1), ("o3", "o1", COORDINATOR))),
    "moments, four seats": (moments, lambda: kit.moments_task((1, 1, 2, 1), law="discrete-gaussian")),
    "moments, active, two owners": (moments, lambda: kit.active(kit.moments_task((2, 3), block_rows=3))),
    "moments, hidden, active": (moments, lambda: kit.active(kit.hidden_moments_task(3, block_rows=16))),
    "moments, proven, no seat": (moments, lambda: proven(NO_SEAT)),
    "moments, hidden, proven": (moments, lambda: proven(kit.hidden_moments_task(2, block_rows=16))),
    "marginals, proven": (marginals, lambda: proven(kit.marginals_task())),
    "marginals, three seats": (marginals, lambda: kit.marginals_task()),
    "marginals, hidden, active": (marginals, lambda: kit.active(kit.marginals_task(((3,), (2, 2)), hidden=True))),
    "polynomials, two owners": (polynomial, lambda: kit.polynomial_task((2, 1), EXPRESSIONS, clip=2.0)),
    "polynomials, active": (polynomial, lambda: kit.active(kit.polynomial_task((2, 1, 1), OF_THREE, clip=2.0))),
}


@pytest.mark.parametrize("which", TASKS)
@settings(max_examples=3)
@given(data=st.data(), partitions=st.sampled_from([1, 2, 4, 8]), people=st.integers(1, 20), seed=st.integers(0, 99))
def test_sums_are_those_of_the_plain_join_whoever_dies(which, data, partitions, people, seed):
    """Everybody has some workers, and some of them die at some time."""
    programs, make = TASKS[which]
    task = make()
    modes = ["helper"] if getattr(task, "hidden", False) else ["helper", "helper", "dh"]
    plan = laned(task, partitions, mode=data.draw(st.sampled_from(modes)))
    workers = {name: data.draw(st.integers(1, 3)) for name in plan.participants}
    lanes = st.builds(LaneAttempt, st.integers(0, partitions - 1), st.integers(1, 3))
    dying = st.dictionaries(st.tuples(st.sampled_from(plan.participants), lanes), st.integers(0, 60), max_size=4)
    held = held_of(task, np.random.default_rng(seed), people, 0.8)
    study = Study(plan, programs, held, workers, data.draw(dying))
    assert np.array_equal(released(study), plain(study))


# --- what lanes leave


def small(partitions=4, people=30, task=None, checked=False, aligning=None, **changes):
    task = task or kit.moments_task((2, 1, 2))
    task = kit.active(task) if checked else task
    held = held_of(task, np.random.default_rng(1), people, 0.8)
    return Study(laned(task, partitions, **({"mode": "helper"} | (aligning or {}))), moments, held, **changes)


@pytest.mark.parametrize(("mode", "padded"), [("ot", None), ("dh", 60), ("helper", 60)])
def test_every_mode_of_alignment_and_padded_lists(mode, padded):
    study = small(2, 40, kit.moments_task((2, 1)), aligning={"mode": mode, "pad_to": padded})
    assert np.array_equal(released(study), plain(study))
    assert len(set(study.keys.values())) == 1
    assert COORDINATOR not in study.keys


def test_signs_of_life_are_no_orders():
    """Heads that speak all the time: every wait is longer than their patience."""
    study = small(2, 12, beat=1e-4)
    assert np.array_equal(released(study), plain(study))


@pytest.mark.parametrize("checked", [False, True], ids=["plain", "active"])
def test_shares_of_two_attempts_differ_and_are_of_the_same_sums(checked):
    """A worker dies when it is done, so that all seats have shares of both attempts; mixed, they are of nothing."""
    study = small(2, checked=checked, deaths={("o1", LaneAttempt(0)): LATE})
    assert np.array_equal(released(study), plain(study))
    task, seats = study.laned.task, study.laned.task.committee.seats
    found = [{seat: study.lanes.results[seat, LaneAttempt(0, attempt)].shares for seat in seats} for attempt in (1, 2)]
    assert all(not np.array_equal(found[0][seat].values, found[1][seat].values) for seat in seats)
    sums = []
    for shares in (*found, {**found[0], "o1": found[1]["o1"]}):
        points = {task.committee.point(seat): shares[seat].values for seat in list(shares)[: task.opened_degree + 1]}
        sums.append(reconstruct(task.committee.system, points, task.opened_degree))
    assert np.array_equal(sums[0], sums[1])
    assert not np.array_equal(sums[0], sums[2])


def test_every_attempt_is_aligned_in_a_context_of_its_own(monkeypatch):
    """A message of one run of ``ot`` must be no message of another."""
    study, real, runs = small(2, deaths={("o1", LaneAttempt(0)): LATE}), laning.align.owner, []

    def noted(me, keys, aligning, *, run, people):
        runs.append((me.name, run))
        return real(me, keys, aligning, run=run, people=people)

    monkeypatch.setattr(laning.align, "owner", noted)
    study.results()
    contexts = [study.laned.run_of(each) for each in (LaneAttempt(0), LaneAttempt(0, 2), LaneAttempt(1))]
    assert sorted(runs) == sorted((name, run) for name in study.laned.task.owners for run in contexts)
    assert len({*contexts, study.laned.run}) == 4


# --- how studies end


def ends(study, kind, said="", who=None, **changed):
    """How everybody ends: with an error of this kind that says this, or hearing of it; and nothing runs on."""
    ended = study.outcomes(**changed)
    found = [one for one in ended.values() if isinstance(one, kind)]
    assert found
    assert all(said in str(one) for one in found)
    assert all(isinstance(one, kind | PeerStopped | PeerLost) for one in ended.values())
    assert who is None or isinstance(ended[who], kind)
    study.check_threads()
    return ended


def held_otherwise(monkeypatch, who, partition, attempt=0, workers=None):
    """Let one head believe that another attempt of a partition counts, or one of other workers."""
    real = LaneWorkers.what_counts

    def other(self):
        if self._engine.name == who:
            self.kept[partition] += attempt
            self._kept_with[partition] = workers or self._kept_with[partition]
        return real.fget(self)

    monkeypatch.setattr(LaneWorkers, "what_counts", property(other))


@pytest.mark.parametrize("other", [{"attempt": 1}, {"workers": bytes(32)}], ids=["attempt", "workers"])
@pytest.mark.parametrize(
    ("who", "how"),
    [
        ("o1", {}),
        ("o0", {"checked": True}),
        ("o1", {"checked": True}),
        ("o2", {"task": NO_SEAT}),  # what it adds would be no part of what the seats hold
    ],
    ids=["plain", "active, first", "active", "no seat"],
)
def test_who_holds_another_lane_ends_the_study_before_anything_is_opened(who, how, other, monkeypatch):
    study, opened = small(**how), []
    held_otherwise(monkeypatch, who, 2, **other)
    # A coordinator without a seat has nothing to open, and waits for what others do.
    monkeypatch.setattr(moments, "release", lambda me, sums, *rest: sums.shares and opened.append(me.name))
    ends(study, DisagreementError, "different lanes that count")
    assert who == "o2" or not opened


class Opening:
    """It would open the sums of a lane."""

    @staticmethod
    def sum_rows(me, summing, task, table=None, *, part=False):
        sums = moments.sum_rows(me, summing, task, table, part=part)
        moments.release(summing, sums, task, None if table is None else np.zeros(task.entries, np.int64))
        return sums


class Failing:
    @staticmethod
    def sum_rows(me, summing, task, table=None, *, part=False):
        if me.name == "o1":
            raise DataError("a cell that only this party may know of")
        return moments.sum_rows(me, summing, task, table, part=part)


class WrongClaims(Opening):
    """Its seats claim that sums are zero, which they are not."""

    @staticmethod
    def sum_rows(me, summing, task, table=None, *, part=False):
        sums = moments.sum_rows(me, summing, task, table, part=part)
        if me.engine.has_seat and sums.rows:
            summing.engine.claims.zero(sums.shares)
        return sums


@pytest.mark.parametrize(
    ("programs", "error", "checked"),
    [(Opening, PrivacyError, False), (Failing, DataError, False), (WrongClaims, ShareError, True)],
)
def test_nothing_is_revealed_in_a_lane_and_what_is_no_loss_ends_the_study_for_all(programs, error, checked):
    plan = small(checked=checked)
    ended = ends(Study(plan.laned, programs, plan.held), error)
    assert programs is not Failing or not any("cell" in str(one) for name, one in ended.items() if name != "o1")


def test_no_seat_of_a_lane_is_spare_and_no_opening_is_planned_in_it():
    task = kit.moments_task((1, 1, 1, 1))
    assert spare_owners(task) == task.owners
    assert spare_owners(LaneTask(task.trust, task.committee)) == ()
    assert LaneTask(task.trust, task.committee).openings == {}


def test_losses_that_cannot_be_made_good_end_the_study(monkeypatch):
    always = {("o2", LaneAttempt(1, attempt)): 3 for attempt in range(1, MOST_ATTEMPTS + 1)}
    assert "8 times" in str(ends(small(deaths=always), PeerLost)[COORDINATOR])

    def gone(me):
        raise PeerLost("its machine is gone")

    ends(small(), PeerLost, o2=gone)

    def broken(self):
        if self.name == "o2":
            raise OSError("no more workers")
        return self.events.get()

    monkeypatch.setattr(ThreadCrew, "event", broken)
    ended = ends(small(), OSError, who="o2")
    assert all(isinstance(ended[name], PeerStopped) for name in ("o0", "o1", COORDINATOR))


def test_too_few_and_too_many_people_end_the_study():
    ends(small(people=10, aligning={"at_least": 11}), AlignmentError, "nothing was opened")
    alone = dict.fromkeys(("o0", "o1", COORDINATOR), 1)
    study = small(16, 50, kit.moments_task((2, 1), rows_at_most=25), workers=alone)
    ends(study, CapacityError, "raise rows_at_most")
    assert len(study.lanes.rooms) < 16, "fifteen of forty people in the last of them are less likely than 2^-25"


def test_slots_of_one_lane_show_that_all_are_too_many():
    task = kit.hidden_moments_task(2, block_rows=16, rows_at_most=100)
    study = small(8, 25, task, workers=dict.fromkeys(("o0", "o1", COORDINATOR), 1))
    ends(study, CapacityError, "lists of all parties together")
    assert len(study.lanes.rooms) <= 2
    refused(CapacityError, "CA030", laned, task, 8, mode="helper", pad_to=20)  # before anybody has a part in it


@pytest.mark.parametrize("aligning", [{}, {"pad_to": 20}], ids=["of partitions", "of padded lists"])
def test_a_list_beyond_its_length_ends_the_study_before_any_lane(monkeypatch, aligning):
    if not aligning:
        monkeypatch.setattr("colonnade.protocols.align.task.filled_length", lambda people, partitions: 3)
    study = small(aligning=aligning)
    ended = ends(study, CapacityError)
    stopped = [str(one) for one in ended.values() if isinstance(one, PeerStopped)]
    assert all("does not take part" in one for one in stopped), "nobody else learns why"
    assert not study.lanes.rooms


def test_owners_that_were_sent_different_keys_miss_people_and_count_nobody_twice(monkeypatch):
    study, real = small(2), laning._spread

    def another(me, plan):
        found = real(me, plan)
        return Partitions(2, bytes(32)) if me.name == "o1" else found

    monkeypatch.setattr(laning, "_spread", another)
    sums = released(study)
    spreads = [Partitions(2, study.keys[name]) for name in ("o0", "o1")]
    for held in study.held.values():
        values = held.table.keys.values
        same = np.flatnonzero(spreads[0].of(values) == spreads[1].of(values))
        held.people, held.values = [held.people[place] for place in same], held.values[same]
    assert 0 < len(common(study.held)["o0"]) < 30
    assert np.array_equal(sums, plain(study))


def test_budget_is_spent_before_the_first_lane():
    study, order = small(2), []
    room = kit.InMemoryNetwork(study.laned.participants)

    def part(name):
        program = study._coordinator if name == COORDINATOR else study._owner(name)
        before = None if name == COORDINATOR else lambda: order.append((name, len(study.lanes.rooms)))
        return kit.run_role(room.place(name), study.laned.task, program, before_sharing=before)

    with kit.ThreadPoolExecutor(4) as pool:
        list(pool.map(part, study.laned.participants))
    assert sorted(order) == [(name, 0) for name in sorted(study.laned.task.owners)]


# --- heads that say what does not fit


def test_owners_with_other_rules_of_partitions_stop_before_any_lane():
    def program(me):
        for name in ("o1", "o2"):
            me.link(name).send("partition-key", key=bytes(32), check=bytes(32))
        me.link(COORDINATOR).recv("lanes", 1 << 20)

    study = small()
    ends(study, ProtocolError, "other rules", o0=program)
    assert not study.lanes.rooms


OUT_OF_TURN = {
    "ended before": [("over",)],
    "nobody has met": [("done", LaneAttempt(1), 7)],
    "that there is not": [("here", LaneAttempt(1, 2))],
    "said all before": [("lost", LaneAttempt(0)), ("lost", LaneAttempt(0))],
}


@pytest.mark.parametrize("said", OUT_OF_TURN)
def test_an_owner_whose_words_do_not_fit_ends_the_study(said):
    study = small()

    def program(me):
        for word in OUT_OF_TURN[said]:
            laning._say(me.link(COORDINATOR), *word)
        return study._owner("o1")(me)

    ends(study, ProtocolError, said, who=COORDINATOR, o1=program)


ORDER = {"what": "meet", "partition": 0, "attempt": 1, "hub": 0, "workers": [b""] * 4}
UNFITTING = {
    "ended before": ("over", None),
    "does not hold": ("kept", LaneAttempt(0)),
    "was not lost": ("again", LaneAttempt(1, 3)),
    "not ready": ("meet", LaneAttempt(3)),
}


@pytest.mark.parametrize("said", UNFITTING)
def test_a_coordinator_whose_orders_do_not_fit_is_left(said):
    study = small(workers={"o0": 1, "o1": 1, "o2": 1})

    def program(me):
        for name in study.laned.task.owners:
            laning._tell(me.link(name), study.laned, *UNFITTING[said])
        return study._coordinator(me)

    ends(study, ProtocolError, said, **{COORDINATOR: program})


def test_a_hub_that_the_study_does_not_name_is_refused():
    plan = small().laned
    refused(ProtocolError, "MS037", laning._order, ORDER | {"hub": plan.hubs}, plan)
    assert laning._order(ORDER | {"hub": plan.hubs - 1}, plan).hub == plan.hubs - 1


def keeps_for_some(link, what, introductions):
    """It tells o0 that a lane is lost, which the others are told is kept: nobody waits, and nothing is opened."""
    return {"kept": ("again", LaneAttempt(0, 2)), "over": ("still", None)}.get(what)


def introduces_another(link, what, introductions):
    """It introduces somebody else as the worker of o1, and tells o1 so."""
    if introductions:
        introductions["o1"] = b"a worker of o1 in another run"


@pytest.mark.parametrize(
    ("lie", "whom", "said"),
    [(keeps_for_some, "o0", ""), (introduces_another, "o1", "another worker in the name of o1")],
)
def test_a_coordinator_that_tells_one_owner_something_else_is_found_out(lie, whom, said):
    study, real, sides = small(1, workers={"o0": 1, "o1": 1, "o2": 1}), laning._tell, {}

    def two_faced(link, plan, what, lane=None, hub=0, introductions=None):
        introductions = introductions and dict(introductions)
        if link is sides[whom]:
            what, lane = lie(link, what, introductions) or (what, lane)
        real(link, plan, what, lane, hub, introductions)

    def program(me):
        sides.update({name: me.link(name) for name in study.laned.task.owners})
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(laning, "_tell", two_faced)
            return study._coordinator(me)

    ended = study.outcomes(**{COORDINATOR: program})
    assert not any(isinstance(one, kit.RunResult) for one in ended.values())
    assert said in str(ended[whom])


def test_a_digest_of_introductions_tells_names_from_words():
    digests = [_digest(each) for each in ({"a": b"bc"}, {"ab": b"c"}, {"a": b"b", "c": b""}, {"a": b"", "c": b"b"})]
    assert len(set(digests)) == len(digests)
    assert _digest({"b": b"2", "a": b"1"}) == _digest({"a": b"1", "b": b"2"})


def test_a_long_split_hears_that_the_study_has_ended():
    study, heard = small(), threading.Event()

    def program(me):
        def split(spread, pulse):
            heard.set()
            while True:  # as a split that never ends would
                pulse()

        return laning.owner(me, study.laned, moments, study.crew("o0", None), split, beat=1e-3)

    def leaves(me):
        assert heard.wait(60)
        raise DataError("something of its own")

    ends(study, DataError, o0=program, o1=leaves)


# --- proofs of bounds


@pytest.mark.parametrize(
    ("programs", "make", "window"),
    [(moments, lambda: kit.moments_task((2, 3), block_rows=3), Moments), (marginals, kit.marginals_task, Marginals)],
    ids=["moments", "marginals"],
)
def test_bounds_that_are_proven_in_lanes_change_no_sum(programs, make, window, monkeypatch):
    """Several windows in a lane; the same rows at once give the same, which are those of the plain join."""
    task, proofs, real = proven(make()), [], InputProofs.window
    monkeypatch.setattr(window, "blocks_per_window", 1)
    held = held_of(task, np.random.default_rng(1), 30, 0.8)
    study = Study(laned(task, 4, mode="helper"), programs, held)
    monkeypatch.setattr(
        InputProofs, "window", lambda self, sizes, **how: (proofs.append(self.engine.name), real(self, sizes, **how))
    )
    sums = released(study)
    assert programs is marginals or proofs.count("o0") > 4
    with pytest.MonkeyPatch.context() as patch:
        kit.no_noise(patch)
        kit.nearest(patch)
        rows = common(held)
        for found in kit.results(task, kit.programs_of(programs, task, rows)).values():
            assert np.array_equal(found.opened, sums)
    assert np.array_equal(sums, plain(study))


FAR = 64_000
"""A thousand times what a row of :func:`moments_task` may have."""


class Liar(InputProver):
    """It fills a row that is too long up by nothing, and says sums that are too long as the longest that fit."""

    def squares(self):
        real, self.blocks = self.blocks, [np.where(np.abs(block) < FAR, block, 0.0) for block in self.blocks]
        found, self.blocks = super().squares(), real
        return found

    def bits_of(self, sums):
        most = isqrt(self.window.ranges.limit**2 // self.window.ranges.width) << self.window.ranges.dropped
        return super().bits_of(np.clip(sums, -most, most))


def over_dealt(monkeypatch, task):
    """The programs of a study in which o1 deals one cell far beyond its bound, and takes its square off with noise."""
    begun, column = threading.Lock(), task.span("o1").start
    real, proofs = OwnMoments.quantise, InputProofs.__init__

    def quantise(self, rows, stream):
        found = real(self, rows, stream)
        if self.span.start == column and len(found) and begun.acquire(blocking=False):
            found[0] = [FAR, *[0] * (len(found[0]) - 1)]
        return found

    def proving(self, engine, ranges):
        proofs(self, engine, ranges)
        self.prover = Liar if engine.name == "o1" else self.prover

    monkeypatch.setattr(OwnMoments, "quantise", quantise)
    monkeypatch.setattr(InputProofs, "__init__", proving)
    square = np.flatnonzero(np.all(np.array(np.triu_indices(task.width)) == column, axis=0))[0]
    opened = []

    class Cheating:
        sum_rows = staticmethod(moments.sum_rows)

        @staticmethod
        def own_noise(me, task):
            return np.eye(1, task.entries, square, dtype=np.int64)[0] * (me.name == "o1") * -(FAR**2)

        @staticmethod
        def release(me, *given):
            opened.append(me.name)
            return moments.release(me, *given)

    return Cheating, square, opened


def test_a_row_far_beyond_its_bound_reads_a_victim_or_ends_the_study_before_anything_is_opened(monkeypatch):
    plan, found = small(2, 12), {}
    for inputs in ("unproven", "proven"):
        with pytest.MonkeyPatch.context() as patch:
            kit.nearest(patch)
            task = kit.active(plan.laned.task, inputs=inputs)
            programs, square, opened = over_dealt(patch, task)
            study = Study(laned(task, 2, mode="helper"), programs, plan.held)
            if inputs == "unproven":
                found = study.results()
                assert len(opened) == 4
            else:
                ends(study, ShareError, "SH015")
                assert not opened
    entries = found["o0"].opened
    assert abs(entries[square]) < FAR, "its square does not show"
    victims = kit.integers(plan.laned.task, common(plan.held))["o0"]
    first = plan.laned.task.span("o1").start
    cells = [entries[np.flatnonzero(np.all([c, first] == np.array(np.triu_indices(6)).T, axis=1))[0]] for c in (0, 1)]
    assert np.rint(np.array(cells) / (2 * FAR)).tolist() in victims.tolist(), "all cells of a row"


def test_a_worker_that_is_lost_while_it_proves_is_run_again(monkeypatch):
    study, real, killed = small(2, task=proven(kit.moments_task((2, 1, 2)))), InputProver.digits, []

    def dies(self, drawn):
        if threading.current_thread().name == "o1 in lane 0-1":
            killed.append(self)
            raise Killed
        return real(self, drawn)

    monkeypatch.setattr(InputProver, "digits", dies)
    assert np.array_equal(released(study), plain(study))
    assert len(killed) == 1
    assert {lane for name, lane in study.lanes.results if name == "o1"} == {LaneAttempt(0, 2), LaneAttempt(1)}


def test_lanes_check_more_often_so_that_one_of_all_that_may_be_lost_passes_no_likelier(monkeypatch):
    study, often, real = small(2, 12, task=proven(kit.moments_task((2, 1, 2)))), set(), ShareClaims._repetitions

    def noted(self, length, times=1):
        often.add(real(self, length, times))
        return real(self, length, times)

    monkeypatch.setattr(ShareClaims, "_repetitions", noted)
    assert np.array_equal(released(study), plain(study))
    assert often == {4}
    ranges = study.laned.task.proven["o1"]
    assert (ranges.projections, ranges.check_repetitions, ranges.repetitions) == (53, 3, 4)
    small_one = proven(kit.moments_task((2, 1, 2)))
    assert small_one.proven["o1"].projections == 46
    assert study.laned.task.agreement == small_one.agreement | {"tries": 128}
    refused(StudyError, "ST880", LanePlan, small_one, kit.align_task(small_one.owners, partitions=2), bytes(32))


def test_proofs_are_counted_before_anything_runs(monkeypatch):
    many = {"rows_at_most": 10**9, "gamma": 16, "constant": 16}
    task = proven(kit.moments_task((20, 20, 20), **many))
    for partitions in (64, 4096, 65_536):
        assert laned(task, partitions, mode="helper").task.committee
    narrow = kit.moments_task((2, 1), rows_at_most=1000)
    monkeypatch.setattr(Moments, "rows_per_window", 2)
    assert proven(narrow).committee
    assert proven(replace(narrow, rows_at_most=MOST_PROOFS)).committee
    assert kit.active(replace(narrow, rows_at_most=2**23)).committee
    refused(CapacityError, "CA880", lambda: proven(replace(narrow, rows_at_most=MOST_PROOFS + 1)).committee)
    fitting = proven(replace(narrow, rows_at_most=2**19))  # at most 8 + 127 lanes of some 67,000 rows
    assert fitting.committee
    refused(CapacityError, "CA880", laned, fitting, 8, mode="helper")


def test_no_lane_has_more_rows_than_proofs_are_counted_for(monkeypatch):
    """People who are common are in one partition, as a first owner may bring about that tries out keys."""
    task = proven(kit.moments_task((2, 1), rows_at_most=64))
    most = most_rows(task, 16)
    people, rng = [f"p{number}" for number in range(most + 1)], np.random.default_rng(1)
    assert len(people) < 64
    held = {}
    for name, width in (("o0", 2), ("o1", 1)):
        own = [*people, *(f"{name} {number}" for number in range(400))]
        held[name] = Held(own, rng.uniform(-0.2, 0.2, (len(own), width)))

    def of(self, keys):
        return np.array([0 if key[4:].startswith(b"p") else sum(key) % 16 for key in keys])

    monkeypatch.setattr(Partitions, "of", of)
    study = Study(laned(task, 16, mode="helper"), moments, held)
    ends(study, CapacityError, "raise rows_at_most")


# --- what cannot be done in lanes


@pytest.mark.parametrize(
    ("task", "why"),
    [
        (kit.gradients_task, "in rounds"),
        (kit.directions_task, "in rounds"),
        (lambda: kit.scores_task(3), "does not add up its people once"),
        (kit.exchange_task, "no committee"),
    ],
)
def test_other_tasks_say_why_not(task, why):
    assert why in task().why_not_lanes
    refused(StudyError, "ST455", LanePlan, task(), kit.align_task(("a", "b"), partitions=2), bytes(32))


def test_what_makes_no_sense_is_refused():
    refused(StudyError, "ST429", laned, kit.moments_task((1, 1)), 2, mode="fuzzy")
    place = kit.InMemoryNetwork(["o0"]).place("o0")
    refused(ValueError, "VA136", run_lane, place, small().laned, LaneAttempt(0), moments)
    with raises(ValueError, "VA138"):
        LaneWorkers(None, None, 2).total  # noqa: B018
