"""What split classifiers and regressors share: encoders that stay with their party, and a head that joins them."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, Self

from colonnade.errors import StudyError
from colonnade.kinds.split import choice, encoders, given, kept
from colonnade.kinds.split.encoders import Encoder, encoder_from, load_encoder
from colonnade.kinds.split.fitted import FittedSplit
from colonnade.kinds.split.given import refuse_learned
from colonnade.kinds.split.linear import Linear
from colonnade.kinds.split.options import image_shape
from colonnade.kinds.split.ways import Learned, Setting, Way, together
from colonnade.models.design import split_label
from colonnade.models.federation import Federation
from colonnade.models.parameters import check_whole
from colonnade.models.planner import PlanDetails, Roster
from colonnade.models.sample_size import SampleSizeForecast
from colonnade.privacy import Statement
from colonnade.protocols.roles import COORDINATOR, Coordinator, Owner
from colonnade.protocols.task import Task
from colonnade.randomness import Stream
from colonnade.tables import Table

MOST_ROWS = 2**31


class SplitModel(FittedSplit):
    """A head over embeddings; each party's encoder reads the party's columns alone, and stays there."""

    # --- planning

    def way(self, roster: Roster) -> Way:
        """Who learns the head from what: a committee where one can be had, unless another way was asked for."""
        return choice.named(self.head, committee=bool(roster.trust.committee))

    def setting(self, roster: Roster) -> Setting:
        """What is public before a plan."""
        design, way = self.design(roster.schemas), self.way(roster)
        width = way.default_width(self, design, roster) if self.width is None else self.width
        check_whole("width", width, 1, 2**16)
        complete = self._completed(way, design.owner, int(width))
        found = given.given(self.encoders, design, complete)
        for each in found.values():
            check_specified(each)
        return Setting(design, roster, found)

    def _completed(self, way: Way, active: str, width: int) -> given.Complete:
        """What the way adds to specifications that leave something out; a module says itself how wide it is."""
        return lambda party, said: (
            dict(said)
            if said.get("kind") == "module"
            else way.completed(said, width, active=party == active, training=self.training)
        )

    def plan(self, roster: Roster) -> Task:
        """The public task of the chosen way, with the least noise that meets the budgets."""
        return self.planned(roster, self.rows)

    def planned(self, roster: Roster, rows: int | None) -> Task:
        """The task for a public number of rows, which some ways need."""
        check_whole("rows_at_most", self.rows_at_most, 1, 2**40)
        if rows is not None:
            check_whole("rows", rows, 1, MOST_ROWS)
        way = self.way(roster)
        choice.check_parameters(self, way)
        return way.plan(self, self.setting(roster), rows)

    @property
    def rows_expected(self) -> int | None:
        """About how many people there are, where that was said."""
        return self.rows

    def plan_for(self, people: Federation) -> Task:
        """The task for these people; they are counted where the way needs their number and it is not given."""
        counted = self.rows is None and self.way(people.roster).name != "committee"
        rows = people.common_rows() if counted else self.rows
        return self.plan_as_requested(people.roster, lambda roster: self.planned(roster, rows))

    def suppositions(self, roster: Roster) -> tuple[str, ...]:
        """Which parties supply encoders, which no code can check."""
        return tuple(each.sentence for each in self.setting(roster).encoders.values() if each.sentence)

    def details(self, task: Task, statement: Statement) -> PlanDetails:
        """What a pre-flight says about the chosen way."""
        return choice.way_of(task).details(task, statement)

    def outlook(self, roster: Roster, task: Task, rows: int | None) -> SampleSizeForecast | None:
        """Whether so many people are enough for the chosen way."""
        return choice.way_of(task).outlook(self, task, rows)

    # --- the joint computation

    def equip(self, party: str, encoder: Mapping[str, Any] | None) -> None:
        """Take the encoder that a party's own configuration names, for studies that leave it to the party."""
        said = (self.encoders or {}).get(party)
        if encoder is None and isinstance(said, Mapping) and said.get("kind") == given.OWN:
            raise given.none_given(party)  # before anything is reserved or sent
        self._own = {} if encoder is None else {party: encoder}

    def encoder_of(self, party: str, table: Table, task: Task, seed: int | None = None) -> Encoder | None:
        """A party's encoder, made anew or as it was supplied; ``None`` where the party has nothing to encode."""
        columns = len(self.centred(party, table).feature_names)
        if not columns:
            return None
        way, said = choice.way_of(task), (self.encoders or {}).get(party)
        active, _ = split_label(self.label, task.owners)
        found = given.one(party, said, columns, self._completed(way, active, way.width(task, party)))
        brought = getattr(self, "_own", {}).get(party) if found.supplied else None
        made = deepcopy(found.made(None if brought is None else own_encoder(party, brought, columns), seed))
        made.party = party
        return made

    def owner(self, me: Owner, table: Table, task: Task) -> Learned:
        """An owner's program: its encoder is made, or taken as it was supplied, and stays with it."""
        way, ordered = choice.way_of(task), table.sorted_by_id()
        encoder = self.encoder_of(me.name, ordered, task)
        return way.owner(self, me, encoder, ordered, task)

    def coordinator(self, me: Coordinator, task: Task) -> Learned:
        """The coordinator's program."""
        return choice.way_of(task).coordinator(self, me, task)

    def outcome(self, outcomes: Mapping[str, Any], task: Task) -> Learned:
        """What all participants ended with, where all of them run in one process."""
        return together({name: outcomes[name] for name in task.owners}, outcomes[COORDINATOR])

    def simulate(
        self, tables: Mapping[str, Table], roster: Roster, stream: Stream | None = None, *, task: Task | None = None
    ) -> Self:
        """Fit in one place, without the protocol; the number of rows is that of the tables if ``rows`` is not given."""
        if task is None:
            rows = next(iter(tables.values())).rows if self.rows is None else self.rows
            task = self.plan_as_requested(roster, lambda roster: self.planned(roster, rows))
        return super().simulate(tables, roster, stream, task=task)

    def simulate_result(self, tables: Mapping[str, Table], task: Task, stream: Stream) -> Learned:
        """What all participants would end with; encoders that are drawn follow from the stream."""
        way = choice.way_of(task)
        found = {}
        for party in task.owners:
            seed = int(stream.uint64(1)[0])
            if (encoder := self.encoder_of(party, tables[party], task, seed)) is not None:
                found[party] = encoder
        return way.simulated(self, found, tables, task, stream)

    def conclude(self, roster: Roster, task: Task, result: Learned) -> Self:
        """Become the fitted model that a result describes."""
        self.head_, self.noise_std_ = choice.way_of(task).name, task.noise_std
        return super().conclude(roster, task, result)


def check_specified(each: given.Given) -> None:
    """Refuse options that the kind does not have, and images of other sizes than the table; nothing is drawn."""
    if each.held is not None or each.kind == given.OWN:
        return
    described = {key: value for key, value in each.spec.items() if key not in given.USE and value is not None}
    try:
        _check(described, each.columns)
    except StudyError as error:
        raise StudyError(f"the encoder of {each.party}: {error} [ST336]") from None


def _check(spec: Mapping[str, Any], columns: int) -> None:
    options = dict(spec)
    kind = options.pop("kind", None)
    if kind == Linear.kind and "over" in options:
        below, _ = encoders.below_of(options)
        _check(below, columns)
        return
    read = encoders.known(kind)[1].read(kind, options)
    if (shape := getattr(read, "shape", None)) is not None:
        image_shape(shape, columns)


def own_encoder(party: str, given: Mapping[str, Any], columns: int) -> Encoder:
    """The encoder that a party's configuration names: ``make`` and ``weights``, at least one of them.

    A party states that it was made without the table of the study. That cannot be checked, but a file that says
    otherwise is refused: that of an encoder that an earlier study trained on private rows.
    """
    make, weights = given.get("make"), given.get("weights")
    if make is not None:
        spec = {"kind": "module", "make": make, "weights": None if weights is None else str(weights)}
        return encoder_from(spec | ({"shape": list(given["shape"])} if given.get("shape") else {}), columns)
    if weights is None:
        raise StudyError(
            f'[encoder] of {party} needs make = "package.module:function", weights = "FILE.npz", or both [ST317]'
        )
    path = Path(weights)
    found = kept.read(path, None).encoder if kept.is_kept(path) else load_encoder(path)
    if found is None:
        raise StudyError(f"{path} holds no encoder [ST318]")
    return encoder_from(refuse_learned(found, f"the encoder in {path}"), columns)
