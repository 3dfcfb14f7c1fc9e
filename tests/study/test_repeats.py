"""A study that already ran is not run, and paid for, once more without somebody's yes."""

from __future__ import annotations

import os
import pty
import re

import pytest

from colonnade.cli.approve import again_for_all, approval_for_all
from colonnade.errors import PolicyError
from colonnade.study import PartyConfig
from colonnade.study.policy import ByDigest
from colonnade.study.repeats import Earlier, check_repeat
from tests.support.errors import raises


@pytest.fixture
def bank(trial):
    """A study, the bank's configuration, and a function that adds a run of it to the bank's ledger."""
    folder = trial()
    folder.edit("STUDY.toml", r"^silence = 60", "silence = 60\nexcuse = 0.2")  # nobody listens to its excuse
    study = folder.study()

    def ran(state="committed", digest=study.digest):
        book = config().book()
        entry = book.reserve(study.name, digest, study.events, study.trust, [], (), study.keys())
        if state == "released":
            book.release(entry)
        elif state != "reserved":
            entry = book.mark_sent(entry)
            if state == "committed":
                book.commit(entry)

    def config(**policy):
        for key, value in policy.items():
            folder.edit("bank/party.toml", r"^tasks = ", f"{key} = {value}\ntasks = ")
        return PartyConfig.load(folder.folder / "bank" / "party.toml")

    return folder, study, config, ran


def test_only_a_study_that_ended_well_already_ran(bank):
    _, study, config, ran = bank
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
    assert re.fullmatch(r"already ran on \d{4}-\d\d-\d\d \d\d:\d\d UTC, as bank's ledger says", found_now(own, study))
    ran()
    assert "the last of 2 times" in found_now(own, study)


def found_now(config, study):
    return Earlier.of(config, study).sentence


def test_who_must_say_yes_to_a_repetition(bank):
    folder, study, config, ran = bank
    ran()
    automatic = config()
    assert "already ran" in check_repeat(study, automatic, None, False)  # the policy says yes to whatever caps allow
    strict = config(again="false")
    by_digest = ByDigest(study.digest)
    for approve in (None, by_digest):
        with raises(PolicyError, "PO028", "--again"):
            check_repeat(study, strict, approve, False)
    assert "already ran" in check_repeat(study, strict, by_digest, True)
    asked = []
    with raises(PolicyError, "PO027", "bank"):
        check_repeat(study, strict, None, lambda said: bool(asked.append(said)))
    assert asked[0].startswith(f"'{study.name}' already ran on ")
    assert check_repeat(study, strict, lambda *_: True, False)  # a program that is asked about every study
    folder.edit("bank/party.toml", "^again = false\n", "")
    folder.edit("bank/party.toml", r'^approval = "auto-within-budget"', 'approval = "ask"')
    with raises(PolicyError, "PO028", "--again"):
        check_repeat(study, config(), by_digest, False)
    assert check_repeat(study, config(again="true"), by_digest, False)


def test_who_starts_everybody_is_asked_whatever_the_policies_say(bank):
    _, study, config, ran = bank
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


def test_a_repetition_is_asked_about_at_the_terminal(bank):
    folder, study, config, ran = bank
    ran()
    config(again="false")
    person, process = pty.openpty()
    try:
        folder.start("bank", stdin=process)
        said = ""
        while "[y/N] " not in said:
            said += folder.children["bank"].stderr.read(1)
        assert re.search(
            rf"study '{study.name}' already ran on .* UTC, as bank's ledger says: spend again\? \[y/N\]", said
        )
        os.write(person, b"n\n")
        ended = folder.ends()
    finally:
        os.close(person)
        os.close(process)
    assert ended["bank"].code == PolicyError.exit_code
    assert folder.states("bank") == ["committed"]
