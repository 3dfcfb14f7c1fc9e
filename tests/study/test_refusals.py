"""A study by a stranger whose schema singles out one person's value: nothing that anybody else sees tells it.

Everything that the others receive is compared between two worlds that differ in that value alone: the messages with
their order, fields and sizes (shares and noised numbers are random, so of these only shapes), and the sentences. Nor
can whoever writes a study choose a party's keys, what an empty list tells, and how often it may fail.
"""

from __future__ import annotations

import io
import json
import re
import sys
import tempfile
import threading
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from colonnade import errors
from colonnade.cli import initialise
from colonnade.cli.approve import TerminalQuestion, approval, approval_for_all, rerun_for_all
from colonnade.errors import BudgetError, PolicyError, ProposalError
from colonnade.federation.agent_store import AgentStore
from colonnade.federation.statements import Proposal
from colonnade.privacy import Ledger, Statement
from colonnade.privacy.ledger.approvers import Approver, write_approvers
from colonnade.study import Study, ledger_view, run_party
from colonnade.study.doctor import examine
from colonnade.study.local import folder_of
from colonnade.study.party_config import DigestApproval, EarlierRuns, check_rerun
from colonnade.tables import Schema
from colonnade.wire.endpoint import SealedChannel
from tests.support.errors import raises
from tests.support.studies import Ended, Trial, check_ended, check_words, edit, outcomes, runnable_text

ROWS = 20
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
    "flag": {"member": "unsure"},
    "number out of bounds": {"age": "107"},
    "number that is none": {"age": "about 40"},
    "missing": {"age": ""},
}
PCA = 'kind = "pca"\n'
ASK = ('approval = "auto-within-budget"', 'approval = "ask"')
FEW_FAILURES = ("# [policy.failures]\n# at_most = 20\n# days = 30", "[policy.failures]\nat_most = 2\ndays = 7")
UNPINNED = '# schemas = ["DIGEST"] '
BUDGET = "[budget]\nepsilon = 5.0\n"
BOTH = '[align]\non = ["id", "work"]\n'
GLM = f'kind = "glm"\nrows = {ROWS}\nmethod = "gradient"\nbatch = 20\nepochs = 2\nlabel = "bank.'
LOGISTIC = 'kind = "logistic"\nmethod = "one-shot"\nlabel = "bank.work"\n'
LABELS = {
    "count": (GLM + 'visits"\nfamily = "poisson"\n', {"visits": "21"}, {"visits": "2.5"}),
    "amount": (GLM + 'age"\nfamily = "linear"\n', {"age": "107"}),
    "class": (LOGISTIC, {"work": "convict"}),
    "class over messages": (GLM + 'work"\n', {"work": "convict"}),
}


class World(Trial):
    """Three parties, the bank's table with a last person of one's choice, and the study of a stranger."""

    def __init__(self, folder):
        self.folder, self.file, self.table = folder, folder / "STUDY.toml", folder / "bank" / "bank.csv"
        self.parties, self.children, self._planned = PARTIES, {}, {}
        (folder / "schemas").mkdir(parents=True)
        for name in PARTIES:
            initialise.party(name, folder / name, f"{name}.csv", "id", "auto-within-budget")
            self.change('tasks = ["pca"]', 'tasks = ["pca", "logistic", "glm"]', name)
            self.change("3.0", "3000.0", name)
            (folder / name / f"{name}.csv").write_text(
                "id,spend\n" + "".join(f"p{n:03},{n % 9}\n" for n in range(ROWS))
            )
            (folder / "schemas" / f"{name}.toml").write_text('[columns.spend]\ntype = "number"\nlow = 0\nhigh = 9\n')
        (folder / "schemas" / "bank.toml").write_text(SCHEMA)
        self.person({})

    def person(self, cells):
        words = ("employed,yes", "employed,no", "retired,no")
        others = [f"p{n:03},{words[n % 3]},{18 + n},{n}" for n in range(ROWS - 1)]
        last = ",".join([f"p{ROWS - 1:03}", *(USUAL | cells).values()])
        self.table.write_text("\n".join(["id,work,member,age,visits", *others, last]) + "\n")

    def change(self, old, new, name="bank"):
        edit(self.folder / name / "party.toml", (old, new))

    def written(self, task=PCA, excuse=5.0, align="", bank=(*USUAL,)):
        columns = {"bank": list(bank), "shop": ["spend"], "clinic": ["spend"]}
        limits = f"reconnect = 2\nexcuse = {excuse}\n"
        self.file.write_text(runnable_text("probe", task, align + BUDGET, columns, limits))
        initialise.trial(self.file)
        self._planned.clear()
        found = self.study()
        assert found.statement.rows  # planned once for all threads
        return found

    def matched(self, align, value="retired"):
        """A study of the bank's ages that recognises people as a stranger likes; the others hold one value for all."""
        for name in ("shop", "clinic"):
            path = self.folder / name / f"{name}.csv"
            head, *rows = path.read_text().splitlines()
            if "work" not in head:
                path.write_text("\n".join([f"{head},work", *(f"{row},{value}" for row in rows)]) + "\n")
        return self.written(excuse=0.1, align=align, bank=("age",))

    def checks(self, study):
        return {check.what: check for check in examine(study.path, self.config().path)}

    def refused_by_bank(self):
        """How the bank ends, which joins when all others wait for it; they see nothing but that it takes no part."""
        self.start_bank_last(threads=True)
        ended = self.ends()
        stopped = Ended(errors.PeerStopped.exit_code, f"colonnade: {NO_PART}\n")
        assert [ended[name] for name in OTHERS] == [stopped] * 3
        return ended["bank"]

    def checked_table(self):
        lines = (folder_of(self.folder / "run", "bank") / "events.jsonl").read_text().splitlines()
        (found,) = [line for line in map(json.loads, lines) if line["what"] == "table checked"]
        return found


def outline(value):
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
    real, lock = SealedChannel.recv, threading.Lock()
    received: dict[tuple[str, str], list[object]] = defaultdict(list)

    def recv(channel, kind, most):
        fields = real(channel, kind, most)
        with lock:
            receiver = channel._identity.name
            received[receiver, channel.peer].append((kind, {name: outline(each) for name, each in fields.items()}))
        return fields

    monkeypatch.setattr(SealedChannel, "recv", recv)

    def observe(world, study):
        received.clear()
        ended = outcomes(study, world.folder / "run")
        messages = {pair: list(said) for pair, said in received.items() if pair[0] != "bank"}
        ends = {name: str(end) if isinstance(end, BaseException) else type(end).__name__ for name, end in ended.items()}
        return {"messages": messages, "ends": ends}

    return observe


@pytest.fixture
def world(tmp_path):
    found = World(tmp_path)
    yield found
    found.clean_up()


# --- what nobody sees


def test_no_value_of_a_feature_shows(world, seen):
    study = world.written()
    usual = seen(world, study)
    assert set(usual["ends"].values()) == {"PCA"}
    assert len(usual["messages"]) >= 6
    for name, cells in ODD.items():
        world.person(cells)
        assert seen(world, study) == usual, name
        checked = world.checked_table()
        counted = checked["clipped"] if name == "number out of bounds" else checked["misfits"].pop(next(iter(cells)))
        assert (counted, checked["misfits"]) == (1, {}), name
    world.person({"work": "convict", "age": ""})
    table = world.checks(study)["table"]  # which the owner is shown
    assert table.level == "unsure"
    assert "work: 1 cell not in the schema, mapped; age: 1 cell not in the schema, mapped" in table.detail
    assert "convict" not in table.detail
    assert set(world.states("bank")) == {"committed"}


def test_a_statement_says_what_earlier_attempts_cost_with_this_one(world, seen):
    study, config = world.written(), world.config()
    for _ in range(2):
        book = config.open_ledger()
        book.mark_sent(book.reserve(study.name, study.digest, study.events, study.trust, [], (), study.keys()))
    assert set(seen(world, study)["ends"].values()) == {"PCA"}
    files = {name: folder_of(world.folder / "run", name) / "privacy.json" for name in ("bank", "shop", "coordinator")}
    said = {name: json.loads(path.read_text()) for name, path in files.items()}
    assert Statement.from_dict(said["bank"]) == study.statement
    assert [said[name].get("attempts") for name in ("shop", "coordinator")] == [None, None], "they had one"
    together = said["bank"]["attempts"]
    assert (together, together["number"]) == (study.statement.of_attempts(3), 3)
    figure = {row["observer"]: row["epsilon"] for row in together["rows"]}
    spent = {each.who: each.spent for each in config.remaining()}
    assert spent["analyst"] == pytest.approx(figure["analyst"])
    assert 1.2 < figure["analyst"] / study.statement.epsilon("analyst") < 3


@pytest.mark.parametrize("name", LABELS)
def test_no_value_of_a_label_shows(world, seen, name):
    task, *odd = LABELS[name]
    study = world.written(task)
    usual = seen(world, study)
    assert not any("stopped" in end for end in usual["ends"].values()), usual["ends"]
    for cells in odd:
        world.person(cells)
        assert seen(world, study) == usual
    assert set(world.states("bank")) == {"committed"}


def test_a_party_may_refuse_for_itself_alone_and_tells_nobody_why(world):
    """Two reasons, one that lies in the table and one that does not: the others see the same."""
    world.change('# misfits = "refuse"', 'misfits = "refuse"')
    world.person(ODD["category"])
    study = world.written()
    check_ended({"bank": world.refused_by_bank()}, ["bank"], [errors.DataError], "column 'work', row 20")
    last = [line["what"] for line in world.happened("bank")][-2:]
    assert last == ["budget released: no share had left", "failed"]
    world.check_states("released")
    world.change('columns = "all"', 'columns = ["age"]')
    check_ended({"bank": world.refused_by_bank()}, ["bank"], [errors.PolicyError])
    world.check_states("released", "released", names=["shop"])
    world.start("coordinator", threads=True)  # and before the others come it says the same
    with pytest.raises(errors.PolicyError):
        run_party(study, world.config(), world.out("bank"))
    assert world.children["coordinator"].communicate(timeout=300)[1] == f"colonnade: {NO_PART}\n"


class UnforeseenError(Exception):
    """Not one of ours."""


@pytest.mark.parametrize("error", [errors.DataError("row 7"), UnforeseenError("7")])
def test_a_party_that_stops_in_the_session_before_its_first_share_tells_nobody_why(world, monkeypatch, error):
    kind = type(world.written().estimator())
    real = kind.owner

    def owner(self, me, table, task):
        if me.name == "bank":
            raise error
        return real(self, me, table, task)

    monkeypatch.setattr(kind, "owner", owner)
    assert str(error) in world.refused_by_bank().text
    world.check_states("released", names=["bank"])


def test_nothing_of_the_table_is_read_before_the_study_is_approved_and_reserved(world):
    world.table.unlink()
    study, out = world.written(excuse=0.1), world.folder / "run"
    world.change(*ASK)
    with raises(errors.PolicyError, "PO012"):
        run_party(study, world.config(), out)
    assert not world.config().ledger.exists()
    with raises(errors.DataError, "DA160"):
        run_party(study, world.config(), out, approve=lambda *_: True)
    assert world.states("bank") == ["released"]
    said = [json.loads(line)["what"] for line in (out / "events.jsonl").read_text().splitlines()]
    assert said.index("approved") < said.index("budget reserved") < said.index("failed")
    assert "table checked" not in said


# --- what a policy names


def test_a_policy_names_the_schemas_that_a_party_agrees_to(world, shown):
    study, digest = world.written(), Schema.load(world.folder / "schemas" / "bank.toml").digest
    schema = world.checks(study)["schema"]
    assert schema.level == "unsure"
    assert digest in schema.detail
    world.change(*ASK)
    assert f"is new: party.toml does not name {digest} under `schemas`, so read schemas/bank.toml" in shown(study)
    world.change(UNPINNED, f'schemas = ["{digest}"] ')
    checks = world.checks(study)
    assert (checks["schema"].level, checks["policy"].level) == ("good", "good")
    assert f"bank's schema in this study, {digest}, is one that party.toml names" in shown(study)
    world.config().check(study)
    world.config().check(world.written(bank=("age",)))  # for fewer of its columns
    path = world.folder / "schemas" / "bank.toml"
    path.write_text(SCHEMA.replace('"employed", "retired"', '"employed"'))
    other = Study.load(study.path)
    with raises(errors.PolicyError, "PO020", "schemas/bank.toml", other.schemas["bank"].digest):
        world.config().check(other)


def test_a_policy_can_insist_on_seats_that_check_each_other_and_not_on_what_there_is_not(world):
    unchecked = world.written()
    text = unchecked.path.read_text()
    unchecked.path.write_text('security = "semi-honest"\n' + text)
    unchecked = Study.load(unchecked.path)
    path = world.folder / "bank" / "party.toml"
    text = path.read_text()
    wrong = [(UNPINNED, f'schemas = ["{digest}"] ', "VA205") for digest in ("abc", "g" * 64, "A" * 64)]
    for old, new, code in [*wrong, ('# security = "active" ', 'security = "covert" ', "ST573")]:
        path.write_text(text.replace(old, new))
        with raises(errors.StudyError, code):
            world.config().content  # noqa: B018 - reads the file
    path.write_text(text.replace('# security = "active" ', 'security = "active" '))
    with raises(errors.PolicyError, "PO018", "bank"):
        world.config().check(unchecked)
    unchecked.path.write_text(f'inputs = "unproven"\n{unchecked.path.read_text()}'.replace("semi-honest", "active"))
    checked = Study.load(unchecked.path)
    world.config().check(checked)
    for inputs in ("unproven", "proven"):
        path.write_text(text.replace('# security = "active" ', f'inputs = "{inputs}" '))
        with raises(*((errors.PolicyError, "PO861", "bank") if inputs == "proven" else (errors.StudyError, "ST573"))):
            world.config().check(checked)
    assert checked.trust.inputs == "unproven"
    checked.path.write_text(checked.path.read_text().replace('inputs = "unproven"\n', ""))
    world.config().check(Study.load(checked.path))


@pytest.fixture
def shown(world, monkeypatch, capsys):
    def show(study):
        monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
        assert not TerminalQuestion((world.config(),))(study, study.statement)
        return capsys.readouterr().out

    return show


# --- a party's keys


def test_a_party_agrees_to_a_key_by_its_id_or_by_name_and_not_because_a_study_names_it(world, shown):
    asked, before = world.matched(BOTH), '"all"'
    for columns in ('["age"]', '["age", "work"]', '"all"'):
        world.change(f"columns = {before}", f"columns = {columns}")
        before = columns
        with raises(errors.PolicyError, "PO025", "work", "party.toml"):
            run_party(asked, world.config(), world.folder / "run")
    assert not world.config().ledger.exists()
    for on in ('"id"', '"person"'):
        world.config().check(world.matched(f"[align]\non = {on}\n"))
    assert "compared exactly" not in shown(world.matched(""))
    world.change("# [keys]\n", '[keys]\nwork = "work"\n')
    world.config().check(world.matched(BOTH))
    assert "outside every epsilon: id in 'id', work in 'work'" in shown(world.matched(BOTH))
    world.change('id = "id" ', "# ")
    with raises(errors.PolicyError, "PO025", "person"):
        world.config().check(world.matched('[align]\non = "person"\n'))


@pytest.mark.parametrize(
    ("lists", "ends"),
    [
        ('duplicates = "drop"\npad_to = 40\n', "AlignmentError"),
        ('mode = "helper"\nhidden = true\npad_to = 40\n', "PCA"),
    ],
    ids=["seen", "hidden"],
)
def test_a_list_without_keys_is_one_without_common_people(world, lists, ends):
    """One cell of the bank is a number, or none: then its table has no key at all."""
    for name in PARTIES:
        world.change("# [keys]\n", '[keys]\nwork = "work"\n', name)
        world.change('align = ["ot", "dh"]', 'align = ["ot", "dh", "helper"]', name)
    asked = world.matched(f'{BOTH}{lists}[align.keys.work]\nkind = "number"\n', value="7")
    seen = []
    for cells in ({"work": "8"}, {}):
        world.person(cells)
        ended = outcomes(asked, world.folder / "run")
        assert {type(end).__name__ for end in ended.values()} == {ends}
        seen.append({name: str(end) for name, end in ended.items()})
    assert seen[0] == seen[1]
    checked, keys = world.checked_table(), world.checks(asked)["keys"]
    assert (checked["rows"], checked["keys"]) == (ROWS, 0)
    assert (keys.level, keys.detail[:17]) == ("bad", "no row has a key,")


# --- how often it may fail


def test_studies_that_end_early_are_counted_and_limited(world):
    world.change(*FEW_FAILURES)
    world.table.write_text(world.table.read_text().replace("id,", "no,", 1))
    study = world.written(excuse=0.1)
    for failed in (0, 1):
        assert world.config().failed_count == failed
        with pytest.raises(errors.DataError):
            run_party(study, world.config(), world.folder / "run")
    with raises(errors.PolicyError, "PO007", "2", "bank", "7"):
        run_party(study, world.config(), world.folder / "run")
    assert world.states("bank") == ["released"] * 2
    ledger = Ledger(world.config().ledger)
    ledger.commit(ledger.reserve("well", study.digest, study.events, study.trust, []))
    assert world.config().failed_count == 2
    assert ledger_view.ledger_facts(ledger, 1e-5, None, world.config())["failures"] == {
        "days": 7,
        "at_most": 2,
        "ended_early": 2,
    }
    assert "2 of at most 2 studies ended early in 7 days" in ledger_view.ledger_text(ledger, 1e-5, None, world.config())
    later = Ledger(ledger.path, clock=lambda: datetime.now(UTC) + timedelta(days=8))
    assert (later.count_aborted_studies(days=7), later.count_aborted_studies()) == (0, 2)


def test_no_more_studies_may_fail_because_they_were_asked_about_at_once(world):
    world.change(*FEW_FAILURES)
    world.change(*ASK)
    world.table.unlink()
    asked, together = world.written(excuse=0.1), threading.Barrier(6)

    def answered(*_):
        return together.wait(60) >= 0

    def ended(number):
        try:
            run_party(asked, world.config(), world.folder / f"run{number}", approve=answered)
        except errors.ColonnadeError as error:
            return type(error)
        return None

    with ThreadPoolExecutor(6) as threads:
        ends = Counter(threads.map(ended, range(6)))
    assert ends == {errors.DataError: 2, errors.PolicyError: 4}
    assert world.states("bank") == ["released"] * 2


# --- who says yes to a study, and to one that already ran: always before anything is reserved or sent


@pytest.fixture
def unheard(trial):
    """A study, and nobody listens to why a party does not take part, so that it need not try for long to say so."""
    study = trial(join=2)
    study.edit("STUDY.toml", r"^silence = 60", "silence = 60\nexcuse = 0.2")
    return study


def asking(study):
    study.edit("bank/party.toml", r'^approval = "auto-within-budget"', 'approval = "ask"')
    return study


def test_a_digest_approves(trial):
    study = asking(trial())
    assert study.config().approval == "ask"
    study.start("coordinator", "shop", "clinic", threads=True)
    digest, two = (
        study.study().digest,
        (Approver("Ada", "console", "10.0.0.7"), Approver("eva", "terminal", "terminal")),
    )
    by_agent = approval([study.config()], digest, mute=True, by=write_approvers(two))
    assert by_agent.how == "Ada in the console, eva at the command line"
    run_party(study.study(), study.config(), study.out("bank"), approve=by_agent)
    (entry,) = study.config().open_ledger().entries()
    assert entry.approvers == two
    line = study.config().open_ledger().lines()[0][1]
    assert json.loads(line)["approvers"] == json.loads(write_approvers(two)), "it is what the chain hashes"
    study.end_well()
    run, ledger = study.run_json("bank"), study.folder / "bank" / "ledger.sqlite"
    assert run["approval"] == {"mode": "ask", "by": by_agent.how}
    assert run["ledger"] == {"path": str(ledger), "new": True, "upgraded": False}
    assert run["ledger_head"] == Ledger(ledger).head
    events = {line["what"]: line for line in study.happened("bank")}
    whats = list(events)
    assert "new ledger: nothing on record before this study" in whats
    assert whats.index("approved") < whats.index("budget reserved") < whats.index("connected")
    assert events["budget spent"]["ledger_head"] == run["ledger_head"]


def test_two_of_the_listed_approve_and_the_ledger_has_both(trial, tmp_path):
    """The proposal comes to an agent's store, people answer there, and the party's process is told who they were."""
    study = asking(trial())
    study.edit("bank/party.toml", r"^\[policy\]", '[policy]\napprovers = ["Ada", "eva", "Bob"]')
    rule, now = study.config().content.policy.rule, datetime.now(UTC)
    loaded = study.study()
    files = {"study.toml": loaded.path.read_bytes()}
    told = Proposal("ana", "", now, now + timedelta(days=1), loaded.name, loaded.digest, files, id="ab" * 16)
    store = AgentStore(tmp_path)
    asked = store.receive(told).id
    store.record_assessment(asked, {"refused": None}, "waiting", None)
    ada, eva = Approver("Ada", "console", "10.0.0.7, signed in by the proxy"), Approver.at_terminal("eva")

    def run():
        given = approval([study.config()], loaded.digest, mute=True, by=write_approvers(store.approvers(asked)))
        return run_party(loaded, study.config(), study.out("bank"), approve=given)

    for by, code in ((ada, None), (ada, "OF780"), (Approver("Max", "console", "10.0.0.7"), "OF820"), (eva, None)):
        assert store.entry(asked).state == "waiting"
        if code is None:
            if by is eva:
                with raises(PolicyError, "PO780"):
                    run()
                assert not study.config().ledger.exists(), "one yes reserves nothing"
            store.approve(asked, by, rule)
        else:
            with raises(ProposalError, code):
                store.approve(asked, by, rule)
    assert store.entry(asked).state == "approved"
    study.start("coordinator", "shop", "clinic", threads=True)
    run()
    study.end_well()
    (entry,) = study.config().open_ledger().entries()
    assert entry.approvers == (ada, eva)
    study.edit("bank/party.toml", "^approvers = .*", 'approvers = ["Ada", "Bob"]')
    with raises(PolicyError, ("PO780", "Ada in the console")):
        study.config().approve(loaded, loaded.statement, DigestApproval(loaded.digest, "", (ada, eva)))


def test_the_ledger_names_the_policy_or_the_people_who_approved_also_a_second_time(trial):
    """A yes of the policy is no person's once people are to be asked, and a person's stays one under a policy."""
    study = trial()
    loaded, ada = study.study(), Approver("Ada", "console", "10.0.0.7, signed in by a link")
    policy = study.config().policy_approver

    def given(*known):
        return study.config().approve(loaded, loaded.statement, DigestApproval(loaded.digest, approvers=known))[1]

    assert (given(), given(policy), given(ada)) == ((policy,), (policy,), (ada,))
    assert (policy.kind, policy.place) == ("policy", "party.toml")
    asking(study)
    assert given(ada, policy) == (ada,)
    with raises(PolicyError, ("PO780", "a person")):
        given(policy)


def test_a_program_is_asked_with_the_study_and_its_cost_and_never_in_vain(unheard, tmp_path):
    study, asked = asking(unheard).study(), []

    def refuse(about, statement):
        asked.append((about.digest, statement.epsilon("analyst")))
        return False

    for old, new, error, message in (
        ("", "", PolicyError, "PO013"),
        (r"^epsilon = .*", "epsilon = { analyst = 0.5 }", BudgetError, ("BU002", "0.0000")),
        (r'^columns = "all".*', 'columns = ["age"]', PolicyError, "PO017"),
    ):
        unheard.edit("bank/party.toml", old, new)
        with raises(error, message):
            run_party(study, unheard.config(), tmp_path / "run", approve=refuse)
    assert asked == [(study.digest, pytest.approx(1.0, abs=1e-6))]
    assert not unheard.config().ledger.exists()


def test_the_doctor_tries_the_folder_of_temporary_files(world, monkeypatch):
    study = world.written()
    found = world.checks(study)["temporary files"]
    assert (found.level, str(tempfile.gettempdir()) in found.detail) == ("good", True)
    monkeypatch.setattr(tempfile, "tempdir", str(world.folder / "not there"))
    found = world.checks(study)["temporary files"]
    assert (found.level, errors.code_of(found.detail)) == ("bad", "SO740")


# --- a study that already ran


@pytest.fixture
def bank(unheard):
    """A study, the bank's configuration, and a function that adds a run of it to the bank's ledger."""
    study = unheard.study()

    def ran(*steps, digest=study.digest):
        book = unheard.config().open_ledger()
        entry = book.reserve(study.name, digest, study.events, study.trust, [], (), study.keys())
        for step in steps or (book.mark_sent, book.commit):
            entry = step(entry)

    def config(**policy):
        for key, value in policy.items():
            unheard.edit("bank/party.toml", r"^tasks = ", f"{key} = {value}\ntasks = ")
        return unheard.config()

    return study, config, ran


def test_only_a_study_that_ended_well_already_ran(bank):
    study, config, ran = bank
    own = config()
    assert EarlierRuns.of(own, study) == EarlierRuns("bank", (), ())
    assert not own.ledger.exists()
    ran(own.open_ledger().release)
    ran(digest="0" * 64)
    assert EarlierRuns.of(own, study) == EarlierRuns("bank", (), ())
    ran(own.open_ledger().mark_sent)
    found = EarlierRuns.of(own, study)
    assert found.sentence is None
    check_words(found.unfinished, "a run of this study that did not end well", "charged in full")
    for often in ("", ", the last of 2 times"):
        ran()
        told = rf"already ran on \d{{4}}-\d\d-\d\d \d\d:\d\d UTC{often}, as bank's ledger says"
        assert re.fullmatch(told, EarlierRuns.of(own, study).sentence)


def test_who_must_say_yes_to_a_repetition(bank, unheard):
    study, config, ran = bank
    ran()
    assert "already ran" in check_rerun(study, config(), None, False)  # the policy says yes to whatever caps allow
    strict, by_digest, asked = config(again="false"), DigestApproval(study.digest), []
    for approve in (None, by_digest):
        with raises(PolicyError, "PO028", "--again"):
            check_rerun(study, strict, approve, False)
    assert "already ran" in check_rerun(study, strict, by_digest, True)
    with raises(PolicyError, "PO027", "bank"):
        check_rerun(study, strict, None, lambda said: bool(asked.append(said)))
    assert asked[0].startswith(f"'{study.name}' already ran on ")
    assert check_rerun(study, strict, lambda *_: True, False)  # a program that is asked about every study
    asking(unheard).edit("bank/party.toml", "^again = false\n", "")
    with raises(PolicyError, "PO028", "--again"):
        check_rerun(study, config(), by_digest, False)
    assert check_rerun(study, config(again="true"), by_digest, False)


def test_who_starts_everybody_is_asked_whatever_the_policies_say(bank, unheard):
    study, config, ran = bank
    unheard.edit("bank/party.toml", "^epsilon = .*", "epsilon = 30.0")
    configs = [config()]
    assert approval_for_all(study, configs, None, False, mute=True) == (None, False)
    ran()
    with raises(PolicyError, "PO028"):
        approval_for_all(study, configs, None, False, mute=True)
    assert approval_for_all(study, configs, None, True, mute=True) == (None, True)
    with raises(PolicyError, "PO001"):
        rerun_for_all(study, configs, lambda _: False)
    assert rerun_for_all(study, configs, lambda _: True)
    assert rerun_for_all(study, [config(again="true")], False)
