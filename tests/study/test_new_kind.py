"""The recipe for a new kind of study: all of one kind is in this module, and no other file knows of it.

Its sums are real: each owner deals the sums of its columns with its share of the noise, seats add them up, and the
total is opened. It goes through plan, pre-flight, policy, threads, processes, report, ledger and audit.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from numpy.typing import NDArray

from colonnade.audit import registry as audits
from colonnade.audit.registry import Game, judge
from colonnade.cli.demo import write_study
from colonnade.cli.results import publish
from colonnade.drawing.canvas import Html, tag
from colonnade.errors import PolicyError, StudyError
from colonnade.models import Estimator, Roster, registry
from colonnade.models.planner import Count, PlanDetails
from colonnade.models.registry import ModelKind
from colonnade.privacy import Event, Ledger, Observer, Sensitivity, Statement, Trust, parse_budgets
from colonnade.privacy.noise.local_mechanisms import round_and_zero_long_rows
from colonnade.privacy.noise_laws import NormalLawName
from colonnade.privacy.sensitivity import rounded_norm_squared
from colonnade.protocols.committee_task import CommitteeTask
from colonnade.protocols.cost import ShareCounts
from colonnade.protocols.roles import Coordinator, Owner, Role
from colonnade.protocols.rows import ColumnBlock, JointRows, Rows, agree_on_rows, compare_rows
from colonnade.protocols.task import TaskPrograms
from colonnade.randomness import Stream
from colonnade.report.sections import ReportSection, Run
from colonnade.study import PartyConfig, Study, preflight, run_local
from colonnade.tables import Schema, number
from tests.support.errors import raises
from tests.support.federations import federation
from tests.support.studies import check_words, edit

ROWS = 60


# --- kinds/totals/task.py


@dataclass(frozen=True)
class Totals(JointRows, CommitteeTask):
    """The public task: the sum of every column, with noise of all owners."""

    blocks: tuple[ColumnBlock, ...]
    trust: Trust
    rows_at_most: int
    noise: int
    gamma: int = 1024
    law: NormalLawName = "skellam"

    noise_on = "a sum"
    message_rounds = 8
    programs = TaskPrograms(__name__)
    games = "totals"

    def limit(self, block: ColumnBlock) -> int:
        return rounded_norm_squared(self.gamma, [block.clip], [len(block.columns)])

    @property
    def moved(self) -> Sensitivity:
        return Sensitivity.from_l2(sum(map(self.limit, self.blocks)), len(self.names))

    @cached_property
    def event(self) -> Event:
        return self.additive.release("column totals", len(self.names), self.moved, theorem="moments-sensitivity")

    @property
    def bound(self) -> int:
        return self.within_63_bits(self.rows_at_most * max(map(self.limit, self.blocks)) + self.additive.reach())

    @property
    def noise_std(self) -> float:
        return self.additive.deviation / self.gamma

    def cells(self, name: str, rows: int) -> ShareCounts:
        seated, count = name in self.trust.committee, len(self.names)
        return ShareCounts(count if name in self.owners else 0, seated * count * len(self.owners), seated * count)

    @property
    def facts(self) -> dict[str, Any]:
        return self.shares_facts

    @property
    def agreement(self) -> dict[str, Any]:
        blocks = [[block.owner, list(block.columns), block.clip.hex()] for block in self.blocks]
        return {"protocol": "totals 1", "blocks": blocks} | self.shares_agreement


# --- kinds/totals/programs.py

Result = tuple[Totals, NDArray[np.int64], NDArray[np.int64] | None]


def reference(tables: Mapping[str, NDArray[np.float64]], task: Totals, stream: Stream) -> NDArray[np.int64]:
    return np.concatenate([column_sums(tables[block.owner], block, task, stream) for block in task.blocks])


def column_sums(rows: NDArray[np.float64], block: ColumnBlock, task: Totals, stream: Stream) -> NDArray[np.int64]:
    return round_and_zero_long_rows(rows * float(task.gamma), task.limit(block), stream).sum(axis=0).astype(np.int64)


def noise_share(task: Totals, stream: Stream, *times: int) -> NDArray[np.int64]:
    return task.additive.draw((*times, len(task.names)), stream)


def owner(me: Owner, held: Rows, task: Totals) -> Result:
    """Round the rows, deal their sums with a share of the noise, and open what all of them add up to."""
    stream = Stream.fresh()
    agree_on_rows(me, task, held)
    own = np.zeros(len(task.names), dtype=np.int64)
    rows = np.vstack(list(held.blocks(8192)))
    own[task.span(me.name)] = column_sums(rows, task.block(me.name), task, stream)
    mine = me.engine.deal(own + noise_share(task, stream))
    return task, _open(me, mine, task), own


def coordinator(me: Coordinator, task: Totals) -> Result:
    compare_rows(me, task)
    return task, _open(me, None, task), None


def _open(me: Role, mine: Any, task: Totals) -> NDArray[np.int64]:
    shape, total = (len(task.names),), None
    if me.engine.has_seat:
        total = me.engine.add([me.dealt_by(name, shape, mine) for name in task.owners])
    opened = me.reveal(total, to=task.everyone, event=task.event, shape=shape, bound=task.bound)
    return me.require_opened(opened).astype(np.int64)


# --- kinds/totals/model.py


class ColumnTotals(Estimator[Totals, Result]):
    """Noisy sums of all encoded columns; every party keeps the exact ones of its own columns."""

    kind = "totals"
    tasks = (Totals,)
    keeps = "sums"

    def __init__(
        self, *, epsilon: float | Mapping[str, float], delta: float = 1e-5, rows_at_most: Count = 1000
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.rows_at_most = rows_at_most

    def plan(self, roster: Roster) -> Totals:
        blocks = tuple(ColumnBlock(name, schema.encoded_names, schema.clip) for name, schema in roster.schemas.items())
        draft = Totals(blocks, roster.trust, self.rows_at_most, noise=len(blocks))
        return draft.calibrate(parse_budgets(self.epsilon, self.delta, roster.trust))

    def details(self, task: Totals, statement: Statement) -> PlanDetails:
        return PlanDetails("adding up", {"totals": len(task.names)}, section=(f"TOTALS of {len(task.names)} columns",))

    def finish(self, result: Result) -> None:
        task, published, self.own_ = result  # what is an owner's own nobody else sees
        self.feature_names_in_ = list(task.names)
        self.totals_ = published / task.gamma

    def kept_content(self) -> bytes:
        return json.dumps({"sums": self.own_.tolist()}).encode()

    def learned_values(self) -> dict[str, Any]:
        return {"feature_names_in": self.feature_names_in_}

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"totals": self.totals_}

    def restore(self, learned: dict[str, Any]) -> None:
        self.feature_names_in_ = learned["feature_names_in"]
        self.totals_ = learned["arrays"]["totals"]

    def summary(self) -> list[str]:
        return [f"totals of {len(self.totals_)} columns"]


# --- kinds/totals/report.py


def result(model: ColumnTotals, run: Run, owners: Any) -> Html:
    return tag("ul", *(tag("li", f"{n}: {v:.1f}") for n, v in zip(model.feature_names_in_, model.totals_, strict=True)))


SECTION: ReportSection[ColumnTotals] = ReportSection(
    title=lambda model, columns: f"the totals of {columns} columns",
    result=result,
    columns=lambda model: len(model.totals_),
)


# --- kinds/totals/audit_totals.py


def example() -> Totals:
    schemas = {name: Schema({"x": number(-1, 1)}) for name in ("bank", "shop", "clinic")}
    return ColumnTotals(epsilon={"analyst": 1.0}).plan(Roster.of(schemas))


def games(task: Totals) -> Iterator[Game]:
    sampler = partial(sample, task)
    story = "no row, or one at its bounds; the opened sums"
    yield Game("totals", Observer.analyst(), story, task.events, task.trust, sampler)


def quieter(neighbour: int, count: int, stream: Stream) -> NDArray[np.float64]:
    return sample(example().with_noise(3), neighbour, count, stream)


def sample(task: Totals, neighbour: int, count: int, stream: Stream) -> NDArray[np.float64]:
    seen = np.zeros((count, len(task.names)))
    for block in task.blocks:
        seen[:, task.names.index(f"{block.owner}.{block.columns[0]}")] = neighbour * int(task.limit(block) ** 0.5)
    for _ in task.owners:
        seen += noise_share(task, stream, count)
    return seen.sum(axis=1)


# --- the one row

ROW = ModelKind("totals", f"{__name__}:ColumnTotals", f"{__name__}:SECTION", (f"{__name__}:games",))


# --- what the rest of the house makes of it

SCHEMAS = {
    "bank": Schema({"income": number(0, 10), "debt": number(0, 5)}),
    "shop": Schema({"basket": number(0, 100)}),
    "clinic": Schema({"bmi": number(10, 50)}),
}
STUDY = """\
name = "totals"
[task]
kind = "totals"
rows_at_most = 500
[budget]
epsilon = 2.0
[coordinator]
address = "127.0.0.1:{port}"
[limits]
join = 60
"""


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> ModelKind:
    audits.subjects()  # games of other kinds are registered by now, and stay so
    monkeypatch.setattr(registry, "_KNOWN", dict(registry._KNOWN))
    monkeypatch.setattr(audits, "_SUBJECTS", dict(audits._SUBJECTS))
    audits.register("totals", "sums of columns", example)(games)
    return registry.register(ROW)


def table(name: str) -> pa.Table:
    draw, people = np.random.default_rng(5), {"person_id": [f"p{index:03}" for index in range(ROWS)]}
    for column, declared in SCHEMAS[name].columns.items():
        people[column] = draw.uniform(*declared.ends, ROWS).round(2).tolist()
    return pa.table(people)


@pytest.fixture
def place(known: ModelKind, tmp_path: Path) -> Study:
    path = write_study(tmp_path / "study", SCHEMAS, STUDY + "{parties}")
    for name in SCHEMAS:
        pyarrow.csv.write_csv(table(name), path.parent / name / f"{name}.csv")
        edit(path.parent / name / "party.toml", ('tasks = ["pca"]', 'tasks = ["totals"]'))
    return Study.load(path)


def test_a_new_kind_runs_in_threads_and_equals_its_reference(known, stream, tmp_path, monkeypatch):
    everybody = federation({name: table(name) for name in SCHEMAS}, SCHEMAS, "person_id")
    with monkeypatch.context() as without_noise:
        without_noise.setattr(sys.modules[__name__], "noise_share", lambda task, _: np.zeros(len(task.names), np.int64))
        model = ColumnTotals(epsilon=1.0).fit(everybody)
    tables = {name: held.matrix() for name, held in everybody.tables().items()}
    exact = reference(tables, model.plan(everybody.roster), stream)
    np.testing.assert_allclose(model.totals_ * 1024, exact, atol=ROWS)  # each row is rounded at random
    again = Estimator.load(model.save(tmp_path / "model.json"))
    assert isinstance(again, ColumnTotals)
    np.testing.assert_array_equal(again.totals_, model.totals_)


def test_a_new_kind_is_priced_and_planned(place, colonnade):
    answer = preflight(place)
    assert (answer.details.method, answer.run.noise_on, answer.run.columns) == ("adding up", "a sum", 4)
    told = ("method: adding up", "TOTALS of 4 columns", "on a sum", "the budget for")
    check_words(colonnade("privacy", place.path), *told)
    plain = colonnade("privacy", place.path, "--json")
    assert (plain["totals"], plain["noise_on"]) == (4, "a sum")
    assert "totals" in colonnade("plan", place.path, "--rows", "--error", 0.5, code=StudyError.exit_code)
    path = place.folder / "bank" / "party.toml"
    edit(path, ('tasks = ["totals"]', 'tasks = ["pca"]'))
    with raises(PolicyError, "PO015", "pca", "totals"):
        PartyConfig.load(path).check(place)
    edit(place.path, ("rows_at_most = 500", "rows_at_most = 0"))
    assert "task.rows_at_most" in colonnade("privacy", place.path, code=StudyError.exit_code)


@pytest.mark.system
def test_a_new_kind_runs_in_processes_with_report_ledger_and_kept_state(place, tmp_path, monkeypatch):
    plugin = tmp_path / "plugin" / "totals-1.dist-info"
    plugin.mkdir(parents=True)
    (plugin / "METADATA").write_text("Metadata-Version: 2.1\nName: totals\nVersion: 1\n")
    (plugin / "entry_points.txt").write_text(f"[colonnade.kinds]\ntotals = {Path(__file__).stem}:ROW\n")
    path = [str(plugin.parent), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, path)))
    out = tmp_path / "run"
    folders = run_local(place, out)
    publish(place, out, folders)
    first, *models = [Estimator.load(folder / "model.json") for folder in folders.values()]
    assert all(np.array_equal(model.totals_, first.totals_) for model in models)
    for name in SCHEMAS:
        file = folders[name] / "kept.json"
        kept = json.loads(file.read_text())["sums"]
        assert (file.stat().st_mode & 0o777, len(kept), any(kept)) == (0o600, 4, True)
        (entry,) = Ledger(place.folder / name / "ledger.sqlite").entries()
        assert (entry.state, entry.events) == ("committed", place.events)
    assert not (out / "kept.json").exists()
    told = ("computed the totals of 4 columns", "bank.income: ", "What each observer can learn")
    check_words((out / "report.html").read_text(), *told)
    task = json.loads((out / "run.json").read_text())["task"]
    assert (task["kind"], task["columns"]) == ("totals", 4)


def test_a_new_kind_is_audited(place, colonnade, tmp_path):
    assert audits.subject(place.task) == "totals"
    few = ("--samples", 20_000, "--seed", 3, "--out", tmp_path / "audit", "--json")
    (real,) = colonnade("audit", "totals", *few)["games"]
    assert real["verdict"] == "holds", real
    (game,) = audits.games("totals")
    assert judge(replace(game, sampler=quieter), 20_000, seed=3).word == "REFUTED", "a tenth of the noise"
    (own,) = colonnade("audit", place.path, *few)["games"]
    assert own["verdict"] == "holds", own


def test_a_kind_that_lacks_a_member_is_refused_when_it_is_registered(known, monkeypatch):
    before = registry.rows()
    monkeypatch.setattr(ColumnTotals, "tasks", (type("Lacking", (JointRows,), {}),))
    with raises(StudyError, "ST537", "Lacking", "agreement", "blocks", "bound", "noise", "trust"):
        registry.register(replace(ROW, kind="others", model=f"{__name__}:Other"))
    assert registry.rows() == before
    monkeypatch.setattr(ColumnTotals, "tasks", (Totals,))
    monkeypatch.setattr(ColumnTotals, "kept_content", Estimator.kept_content)
    with raises(StudyError, "ST142", "kept"):
        registry.register(replace(ROW, kind="others", model=f"{__name__}:Other"))
    with raises(StudyError, "ST138", "totals"):
        registry.register(replace(ROW, model="colonnade.kinds.pca.model:PCA"))


class Other(ColumnTotals):
    kind = "others"
