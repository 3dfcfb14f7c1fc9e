"""A study by a stranger whose schema singles out one person's value: nothing that anybody else sees tells it.

Everything that the others receive is compared between two worlds that differ in that value alone: the messages with
their order, fields and sizes (shares and noised numbers are random, so of these only shapes), and the sentences.
"""

from __future__ import annotations

import io
import json
import re
import shutil
import sys
import threading
import time
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from colonnade import errors
from colonnade.cli import initialise
from colonnade.cli.approve import Question
from colonnade.cli.output import speak_json
from colonnade.privacy import Ledger
from colonnade.study import PartyConfig, Study, book, run, run_party
from colonnade.study.doctor import examine
from colonnade.study.local import folder_of
from colonnade.tables import Schema
from colonnade.wire.channel import Channel
from tests.support.errors import raises
from tests.support.studies import InThread, outcomes, runnable_text

ROWS = 30
PARTIES = ("bank", "shop", "clinic")
OTHERS = ("coordinator", "shop", "clinic")
NO_PART = "bank stopped the study: it does not take part in this study; only its own log says why [PE019]"

# The bank's cells are everybody's but the last person's, whose row a test may write otherwise.
SCHEMA = """\
[columns.work]
type = "category"
values = ["employed", "retired"]
[columns.member]
type = "flag"
[columns.age]
type = "number"
low = 18
high = 90
[columns.visits]
type = "number"
low = 0
high = 20
"""
USUAL = {"work": "retired", "member": "yes", "age": "44", "visits": "3"}
ODD = {
    "category": {"work": "convict"},
    "category that reads as missing": {"work": "None"},
    "flag": {"member": "unsure"},
    "number out of bounds": {"age": "107"},
    "number that is none": {"age": "about 40"},
    "infinite number": {"age": "inf"},
    "missing": {"age": ""},
}
PCA = 'kind = "pca"\n'
GLM = f'kind = "glm"\nrows = {ROWS}\nmethod = "gradient"\nbatch = 30\nepochs = 2\nlabel = "bank.'
LOGISTIC = 'kind = "logistic"\nmethod = "one-shot"\nlabel = "bank.work"\n'
LABELS = {
    "count out of bounds": (GLM + 'visits"\nfamily = "poisson"\n', {"visits": "21"}),
    "count that is not whole": (GLM + 'visits"\nfamily = "poisson"\n', {"visits": "2.5"}),
    "amount out of bounds": (GLM + 'age"\nfamily = "linear"\n', {"age": "107"}),
    "unknown class": (LOGISTIC, {"work": "convict"}),
    "unknown class over messages": (GLM + 'work"\n', {"work": "convict"}),
}


class World:
    """Three parties, the bank's table with a last person of one's choice, and the study of a stranger."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "schemas").mkdir(parents=True)
        rng = np.random.default_rng(5)
        for name in PARTIES:
            initialise.party(name, folder / name, f"{name}.csv", "id", "auto-within-budget")
            self.edit_party(name, 'tasks = ["pca"]', 'tasks = ["pca", "logistic", "glm"]')
            self.edit_party(name, "3.0", "3000.0")
            head, values = "id,spend\n", rng.uniform(0, 9, ROWS)
            rows = "".join(f"p{n:03},{value:.3f}\n" for n, value in enumerate(values))
            (folder / name / f"{name}.csv").write_text(head + rows)
            (folder / "schemas" / f"{name}.toml").write_text('[columns.spend]\ntype = "number"\nlow = 0\nhigh = 9\n')
        (folder / "schemas" / "bank.toml").write_text(SCHEMA)
        self.person({})

    def person(self, cells: dict[str, str]) -> None:
        """Write the bank's table, in which the last person has these cells."""
        rng = np.random.default_rng(6)
        lines = ["id,work,member,age,visits"]
        for n in range(ROWS - 1):
            work, member = rng.choice(["employed", "retired"]), rng.choice(["yes", "no"])
            lines.append(f"p{n:03},{work},{member},{rng.integers(18, 91)},{rng.integers(0, 21)}")
        lines.append(",".join([f"p{ROWS - 1:03}", *(USUAL | cells).values()]))
        (self.folder / "bank" / "bank.csv").write_text("\n".join(lines) + "\n")

    def edit_party(self, name: str, old: str, new: str) -> None:
        path = self.folder / name / "party.toml"
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def study(self, task: str = PCA, excuse: float = 5.0) -> Study:
        columns = {"bank": list(USUAL), "shop": ["spend"], "clinic": ["spend"]}
        path = self.folder / "STUDY.toml"
        path.write_text(
            runnable_text("probe", task, "[budget]\nepsilon = 5.0\n", columns, f"reconnect = 2\nexcuse = {excuse}\n")
        )
        initialise.trial(path)
        return Study.load(path)

    @property
    def config(self) -> PartyConfig:
        return PartyConfig.load(self.folder / "bank" / "party.toml")

    def ends_with_bank_last(self, study: Study) -> tuple[BaseException | None, dict[str, tuple[int | None, str]]]:
        """How the bank ends, which joins when all others wait for it, and how they end."""
        assert study.statement.rows  # planned once for all threads
        out, key = self.folder / "run", self.folder / "coordinator" / "coordinator.key"
        shutil.rmtree(out, ignore_errors=True)
        others = {"coordinator": InThread(lambda: run.run_coordinator(study, key, out))}
        for name in ("shop", "clinic"):
            config = PartyConfig.load(self.folder / name / "party.toml")
            others[name] = InThread(lambda config=config, name=name: run_party(study, config, folder_of(out, name)))
        until = time.monotonic() + 300
        while not all(self._is_connected(folder_of(out, name)) for name in others):
            assert time.monotonic() < until
            time.sleep(0.01)
        bank = InThread(lambda: self._bank(study, out))
        bank.communicate(timeout=300)
        said = {name: other.communicate(timeout=300)[1] for name, other in others.items()}
        return self.error, {name: (others[name].returncode, said[name]) for name in others}

    def _bank(self, study: Study, out: Path) -> None:
        self.error: BaseException | None = None
        try:
            run_party(study, self.config, folder_of(out, "bank"))
        except BaseException as error:
            self.error = error

    @staticmethod
    def _is_connected(folder: Path) -> bool:
        path = folder / "events.jsonl"
        return path.exists() and '"connected"' in path.read_text()

    def states(self, name: str) -> list[str]:
        return [entry.state for entry in Ledger(self.folder / name / "ledger.sqlite").entries()]

    def happened(self) -> list[dict]:
        lines = (folder_of(self.folder / "run", "bank") / "events.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


def outline(value: object) -> object:
    """What of a field does not depend on chance: plain values, and the shapes of everything else."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape
    if isinstance(value, bytes) or (isinstance(value, str) and re.fullmatch("[0-9a-f]{32,}", value)):
        return len(value)
    if isinstance(value, float):
        return "a number"
    return [outline(each) for each in value] if isinstance(value, list) else value


@pytest.fixture
def seen(monkeypatch):
    """A function that runs a study and returns all that anybody but the bank receives and ends with."""
    real, lock = Channel.recv, threading.Lock()
    received: dict[tuple[str, str], list[object]] = defaultdict(list)

    def recv(channel, kind, most):
        fields = real(channel, kind, most)
        with lock:
            receiver = channel._identity.name
            received[receiver, channel.peer].append((kind, {name: outline(each) for name, each in fields.items()}))
        return fields

    monkeypatch.setattr(Channel, "recv", recv)

    def observe(world: World, study: Study) -> dict[str, object]:
        received.clear()
        ended = outcomes(study, world.folder / "run")
        messages = {pair: list(said) for pair, said in received.items() if pair[0] != "bank"}
        ends = {name: str(end) if isinstance(end, BaseException) else type(end).__name__ for name, end in ended.items()}
        return {"messages": messages, "bank": ends.pop("bank"), "ends": ends}

    return observe


@pytest.fixture
def world(tmp_path) -> World:
    return World(tmp_path)


def without_bank(observed: dict[str, object]) -> dict[str, object]:
    return {name: each for name, each in observed.items() if name != "bank"}


def test_no_value_of_a_feature_shows(world, seen):
    study = world.study()
    usual = seen(world, study)
    assert set(usual["ends"].values()) == {"PCA"}
    assert len(usual["messages"]) >= 6
    for name, cells in ODD.items():
        world.person(cells)
        observed = seen(world, study)
        assert without_bank(observed) == without_bank(usual), name
        assert observed["bank"] == "PCA", name
        (checked,) = [line for line in world.happened() if line["what"] == "table checked"]
        column = next(iter(cells))
        counted = checked["clipped"] if name == "number out of bounds" else checked["misfits"].pop(column)
        assert (counted, checked["misfits"]) == (1, {}), name
    assert set(world.states("bank")) == {"committed"}


@pytest.mark.parametrize("name", LABELS)
def test_no_value_of_a_label_shows(world, seen, name):
    task, cells = LABELS[name]
    study = world.study(task)
    usual = seen(world, study)
    assert not any("stopped" in end for end in usual["ends"].values()), usual["ends"]
    world.person(cells)
    odd = seen(world, study)
    assert odd == usual
    assert set(world.states("bank")) == {"committed"}


def test_a_party_may_refuse_for_itself_alone_and_tells_nobody_why(world):
    """Two reasons, one that lies in the table and one that does not: the others see the same."""
    world.edit_party("bank", '# misfits = "refuse"', 'misfits = "refuse"')
    world.person(ODD["category"])
    study = world.study()
    first, seen_first = world.ends_with_bank_last(study)
    assert isinstance(first, errors.DataError)
    assert "column 'work', row 30" in str(first)
    assert [line["what"] for line in world.happened()][-2:] == ["budget released: no share had left", "failed"]
    assert world.states("bank") == ["released"]
    world.edit_party("bank", 'columns = "all"', 'columns = ["age"]')
    second, seen_second = world.ends_with_bank_last(study)
    assert isinstance(second, errors.PolicyError)
    stopped = (errors.PeerStopped.exit_code, f"colonnade: {NO_PART}\n")
    assert seen_first == seen_second == dict.fromkeys(OTHERS, stopped)
    assert world.states("shop") == ["released", "released"]


def test_nothing_of_the_table_is_read_before_the_study_is_approved_and_reserved(world):
    (world.folder / "bank" / "bank.csv").unlink()
    study = world.study(excuse=0.1)
    world.edit_party("bank", 'approval = "auto-within-budget"', 'approval = "ask"')
    with raises(errors.PolicyError, "PO012"):
        run_party(study, world.config, world.folder / "run")
    assert not world.config.ledger.exists()
    with raises(errors.DataError, "DA160"):
        run_party(study, world.config, world.folder / "run", approve=lambda *_: True)
    assert world.states("bank") == ["released"]
    whats = [json.loads(line)["what"] for line in (world.folder / "run" / "events.jsonl").read_text().splitlines()]
    assert whats.index("approved") < whats.index("budget reserved") < whats.index("failed")
    assert "table checked" not in whats


class UnforeseenError(Exception):
    """Not one of ours."""


@pytest.mark.parametrize("error", [errors.CapacityError("7 rows"), errors.DataError("row 7"), UnforeseenError("7")])
def test_a_party_that_stops_in_the_session_before_its_first_share_tells_nobody_why(world, monkeypatch, error):
    study = world.study()
    assert study.statement.rows

    def owner(self, me, table, task):
        if me.name == "bank":
            raise error
        return real(self, me, table, task)

    kind = type(study.estimator())
    real = kind.owner
    monkeypatch.setattr(kind, "owner", owner)
    ended, seen = world.ends_with_bank_last(study)
    assert ended is error
    assert seen == dict.fromkeys(OTHERS, (errors.PeerStopped.exit_code, f"colonnade: {NO_PART}\n"))
    assert world.states("bank") == ["released"]


def test_the_owner_is_shown_what_does_not_fit(world):
    world.person({"work": "convict", "age": ""})
    study = world.study()
    (table,) = [check for check in examine(study.path, world.config.path) if check.what == "table"]
    assert table.level == "unsure"
    assert "work: 1 cell not in the schema, mapped; age: 1 cell not in the schema, mapped" in table.detail
    assert "convict" not in table.detail


def test_a_policy_names_the_schemas_that_a_party_agrees_to(world):
    study, digest = world.study(), Schema.load(world.folder / "schemas" / "bank.toml").digest
    checks = {check.what: check for check in examine(study.path, world.config.path)}
    assert checks["schema"].level == "unsure"
    assert digest in checks["schema"].detail
    world.edit_party("bank", '# schemas = ["DIGEST"] ', f'schemas = ["{digest}"] ')
    checks = {check.what: check for check in examine(study.path, world.config.path)}
    assert (checks["schema"].level, checks["policy"].level) == ("good", "good")
    world.config.check(study)
    path = world.folder / "schemas" / "bank.toml"
    path.write_text(SCHEMA.replace('"employed", "retired"', '"employed"'))
    other = Study.load(study.path)
    with raises(errors.PolicyError, "PO020", "schemas/bank.toml", other.schemas["bank"].digest):
        world.config.check(other)


def test_a_party_can_insist_on_seats_that_check_each_other(world):
    unchecked = world.study()
    world.edit_party("bank", '# security = "active" ', 'security = "active" ')
    told = ("PO018", "bank")
    with raises(errors.PolicyError, told):
        world.config.check(unchecked)
    (policy,) = [check for check in examine(unchecked.path, world.config.path) if check.what == "policy"]
    assert policy.level == "bad"
    unchecked.path.write_text('security = "active"\n' + unchecked.path.read_text())
    world.config.check(Study.load(unchecked.path))


def test_a_policy_cannot_insist_on_what_there_is_not(world):
    world.edit_party("bank", '# security = "active" ', 'security = "covert" ')
    with raises(errors.StudyError, "ST573"):
        world.config.content  # noqa: B018 - reads the file


def test_whoever_approves_is_shown_the_schema_and_whether_it_is_new(world, monkeypatch, capsys):
    study, digest = world.study(), Schema.load(world.folder / "schemas" / "bank.toml").digest
    world.edit_party("bank", 'approval = "auto-within-budget"', 'approval = "ask"')

    speak_json(False)  # another test may have run a command that prints JSON

    def shown() -> str:
        monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
        assert not Question((world.config,))(study, study.statement)
        return capsys.readouterr().out

    assert f"is new: party.toml does not name {digest} under `schemas`, so read schemas/bank.toml" in shown()
    world.edit_party("bank", '# schemas = ["DIGEST"] ', f'schemas = ["{digest}"] ')
    assert f"bank's schema in this study, {digest}, is one that party.toml names" in shown()


def test_a_pinned_schema_may_be_asked_for_fewer_of_its_columns(world):
    study, digest = world.study(), Schema.load(world.folder / "schemas" / "bank.toml").digest
    world.edit_party("bank", '# schemas = ["DIGEST"] ', f'schemas = ["{digest}"] ')
    text = study.path.read_text()
    study.path.write_text(text.replace('["work", "member", "age", "visits"]', '["age"]'))
    fewer = Study.load(study.path)
    assert fewer.roster.schemas["bank"].names == ("age",)
    world.config.check(fewer)


@pytest.mark.parametrize("digest", ["abc", "g" * 64, "A" * 64])
def test_only_a_digest_names_a_schema(world, digest):
    world.edit_party("bank", '# schemas = ["DIGEST"] ', f'schemas = ["{digest}"] ')
    with raises(errors.StudyError, "VA205"):
        world.config.content  # noqa: B018 - reads the file


def test_studies_that_end_early_are_counted_and_limited(world):
    world.edit_party(
        "bank", "# [policy.failures]\n# at_most = 20\n# days = 30", "[policy.failures]\nat_most = 2\ndays = 7"
    )
    table = (world.folder / "bank" / "bank.csv").read_text()
    (world.folder / "bank" / "bank.csv").write_text(table.replace("id,", "no,", 1))
    study = world.study(excuse=0.1)
    for failed in (0, 1):
        assert world.config.failed == failed
        with pytest.raises(errors.DataError):
            run_party(study, world.config, world.folder / "run")
    with raises(errors.PolicyError, "PO007", "2", "bank", "7"):
        run_party(study, world.config, world.folder / "run")
    assert world.states("bank") == ["released"] * 2
    ledger = Ledger(world.config.ledger)
    ledger.commit(ledger.reserve("well", study.digest, study.events, study.trust, []))
    assert world.config.failed == 2
    shown = book.facts(ledger, 1e-5, None, world.config)
    assert (shown["ended_early"], shown["failures"]) == (2, {"days": 7, "at_most": 2, "ended_early": 2})
    assert "\n2 of these ended early, or have not ended\n" in book.text(ledger, 1e-5, None, None)
    assert "2 of at most 2 studies ended early in 7 days" in book.text(ledger, 1e-5, None, world.config)
    later = Ledger(ledger.path, clock=lambda: datetime.now(UTC) + timedelta(days=8))
    assert (later.ended_early(days=7), later.ended_early()) == (0, 2)


def test_a_party_that_refuses_before_the_others_come_says_the_same(world):
    world.edit_party("bank", 'columns = "all"', 'columns = ["age"]')
    study, out = world.study(), world.folder / "run"
    assert study.statement.rows
    key = world.folder / "coordinator" / "coordinator.key"
    hub = InThread(lambda: run.run_coordinator(study, key, out))
    with pytest.raises(errors.PolicyError):
        run_party(study, world.config, folder_of(out, "bank"))
    assert hub.communicate(timeout=300)[1] == f"colonnade: {NO_PART}\n"
