"""Who says yes to a study, and to one that already ran: always before anything is reserved or sent."""

from __future__ import annotations

import json
import re

import pytest

from colonnade.cli.approve import again_for_all, approval_for_all
from colonnade.errors import BudgetError, PolicyError
from colonnade.privacy import Ledger
from colonnade.study import run_party
from colonnade.study.policy import ByDigest
from colonnade.study.repeats import Earlier, check_repeat
from tests.support.errors import raises


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
    run_party(study.study(), study.config(), study.out("bank"), approve=ByDigest(study.study().digest[:32]))
    study.end_well()
    run, ledger = study.run_json("bank"), study.folder / "bank" / "ledger.sqlite"
    assert run["approval"] == {"mode": "ask", "by": "the digest given with --approve"}
    assert run["ledger"] == {"path": str(ledger), "new": True, "upgraded": False}
    assert run["ledger_head"] == Ledger(ledger).head
    events = {line["what"]: line for line in study.happened("bank")}
    whats = list(events)
    assert "new ledger: nothing on record before this study" in whats
    assert whats.index("approved") < whats.index("budget reserved") < whats.index("connected")
    assert events["budget spent"]["ledger_head"] == run["ledger_head"]


def test_a_program_is_asked_with_the_study_and_its_cost(unheard, tmp_path):
    study, asked = asking(unheard).study(), []

    def refuse(about, statement):
        asked.append((about.digest, statement.epsilon("analyst")))
        return False

    with raises(PolicyError, "PO013"):
        run_party(study, unheard.config(), tmp_path / "run", approve=refuse)
    assert asked == [(study.digest, pytest.approx(1.0, abs=1e-6))]
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "failed"
    assert unheard.states("bank") == []


@pytest.mark.parametrize(
    ("old", "new", "error", "message"),
    [
        (r'^columns = "all".*', 'columns = ["age"]', PolicyError, "PO017"),
        (r"^epsilon = .*", "epsilon = { analyst = 0.5 }", BudgetError, ("BU002", "0.0000")),
    ],
    ids=["policy", "budget"],
)
def test_nobody_is_asked_in_vain(unheard, tmp_path, old, new, error, message):
    asking(unheard).edit("bank/party.toml", old, new)
    with raises(error, message):
        run_party(unheard.study(), unheard.config(), tmp_path / "run", approve=lambda *_: pytest.fail("asked"))
    assert not unheard.config().ledger.exists()


# --- a study that already ran


@pytest.fixture
def bank(unheard):
    """A study, the bank's configuration, and a function that adds a run of it to the bank's ledger."""
    study = unheard.study()

    def ran(state="committed", digest=study.digest):
        book = unheard.config().book()
        entry = book.reserve(study.name, digest, study.events, study.trust, [], (), study.keys())
        if state == "released":
            book.release(entry)
            return
        entry = book.mark_sent(entry)
        if state == "committed":
            book.commit(entry)

    def config(**policy):
        for key, value in policy.items():
            unheard.edit("bank/party.toml", r"^tasks = ", f"{key} = {value}\ntasks = ")
        return unheard.config()

    return study, config, ran


def test_only_a_study_that_ended_well_already_ran(bank):
    study, config, ran = bank
    own = config()
    assert Earlier.of(own, study) == Earlier("bank", (), ())
    assert not own.ledger.exists()
    ran("released")
    ran(digest="0" * 64)
    assert Earlier.of(own, study) == Earlier("bank", (), ())
    ran("sent")
    found = Earlier.of(own, study)
    assert found.sentence is None
    assert "a run of this study that did not end well" in found.unfinished
    assert "charged in full" in found.unfinished
    ran()
    said = Earlier.of(own, study).sentence
    assert re.fullmatch(r"already ran on \d{4}-\d\d-\d\d \d\d:\d\d UTC, as bank's ledger says", said)
    ran()
    assert "the last of 2 times" in Earlier.of(own, study).sentence


def test_who_must_say_yes_to_a_repetition(bank, unheard):
    study, config, ran = bank
    ran()
    assert "already ran" in check_repeat(study, config(), None, False)  # the policy says yes to whatever caps allow
    strict, by_digest, asked = config(again="false"), ByDigest(study.digest), []
    for approve in (None, by_digest):
        with raises(PolicyError, "PO028", "--again"):
            check_repeat(study, strict, approve, False)
    assert "already ran" in check_repeat(study, strict, by_digest, True)
    with raises(PolicyError, "PO027", "bank"):
        check_repeat(study, strict, None, lambda said: bool(asked.append(said)))
    assert asked[0].startswith(f"'{study.name}' already ran on ")
    assert check_repeat(study, strict, lambda *_: True, False)  # a program that is asked about every study
    asking(unheard).edit("bank/party.toml", "^again = false\n", "")
    with raises(PolicyError, "PO028", "--again"):
        check_repeat(study, config(), by_digest, False)
    assert check_repeat(study, config(again="true"), by_digest, False)


def test_who_starts_everybody_is_asked_whatever_the_policies_say(bank):
    study, config, ran = bank
    configs = [config()]
    assert approval_for_all(study, configs, None, False, mute=True) == (None, False)
    ran()
    with raises(PolicyError, "PO028"):
        approval_for_all(study, configs, None, False, mute=True)
    assert approval_for_all(study, configs, None, True, mute=True) == (None, True)
    with raises(PolicyError, "PO001"):
        again_for_all(study, configs, lambda _: False)
    assert again_for_all(study, configs, lambda _: True)
    assert again_for_all(study, [config(again="true")], False)
