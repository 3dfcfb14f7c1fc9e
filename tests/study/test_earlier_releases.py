"""What release 0.1.0 wrote stays readable, and studies that it agreed on stay the same studies.

``tests/fixtures`` holds what that release wrote, ``tests/fixtures/make.py`` says how. Whatever is moved or renamed in
the code, only the imports below may have to follow. A test that fails here means that participants of two releases
would not agree, or that somebody's file cannot be used any more.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
import os
import re
import shutil
import textwrap
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colonnade.cli.text_output import preflight as shown, security
from colonnade.errors import ColonnadeError, without_code
from colonnade.models import Estimator
from colonnade.models.registry import section_of
from colonnade.privacy import Ledger, Observer
from colonnade.privacy.statement import MISFITS, TIMES, format_rounded_up
from colonnade.report import render
from colonnade.study import PartyConfig, Study, preflight
from colonnade.study.alignment_session import AlignmentStore
from colonnade.study.planning import NoiseAmount, epsilons, least_rows
from colonnade.wire.codec import decode, encode

OTHER_VERSIONS = os.environ.get("COLONNADE_LOWEST") == "1"
FIXTURES = Path(__file__).parents[1] / "fixtures"
PARTIES = ("bank", "shop", "clinic")
THEN = "every table fits its schema{labels}; a party whose table does not is seen to stop, which is not counted here"
"""What stood in place of the sentence about cells outside a schema."""
AGAIN = "; next to nothing where an earlier alignment is used again"

# --- comparing


def plain(value):
    return json.loads(json.dumps(value))


def read(path):
    return json.loads((FIXTURES / path).read_text(encoding="utf-8"))


def differences(found, expected, where=""):
    """Where two plain values differ; floats may differ by one part in a billion."""
    if isinstance(expected, dict) and isinstance(found, dict):
        missing = [f"{where}.{key} is in one of them alone" for key in sorted(set(found) ^ set(expected))]
        both = [key for key in expected if key in found]
        return missing + [line for key in both for line in differences(found[key], expected[key], f"{where}.{key}")]
    if isinstance(expected, list) and isinstance(found, list) and len(found) == len(expected):
        pairs = enumerate(zip(found, expected, strict=True))
        return [line for place, (a, b) in pairs for line in differences(a, b, f"{where}[{place}]")]
    if isinstance(expected, float) and isinstance(found, float):
        same = math.isclose(found, expected, rel_tol=1e-9, abs_tol=1e-300)
        return [] if same else [f"{where}: {found!r} and not {expected!r}"]
    same = type(found) is type(expected) and found == expected
    return [] if same else [f"{where}: {found!r} and not {expected!r}"]


# --- studies


def agreed(study):
    events = [event.to_dict() for event in study.events]
    found = {"digest": study.digest, "agreement": study.task.agreement, "events": events}
    return plain(found | ({} if study.aligning is None else {"aligning": study.aligning.agreement}))


def priced(study):
    """What people are told of a study beforehand, as values and as text, in the words of earlier releases.

    They said something else about cells outside a schema, nothing about times, who may deviate or noise that is not
    drawn, and that a hidden alignment may be used again, which none is. One figure was rounded to the nearest.
    """
    answer, statement = preflight(study), study.statement.to_dict()
    values = answer.to_dict()
    assert values["statement"] == statement
    assert values["digest"] == study.digest
    assert statement["events"] == [event.to_dict() for event in study.events]
    # What is written once is not written again: the events are in what was agreed.
    values["statement"] = {name: value for name, value in statement.items() if name not in ("events", "missing_noise")}
    assert TIMES in statement["assumptions"]
    messages = any(event.name.startswith("slopes of ") for event in study.events)
    then = THEN.format(labels=" and every label the model" if messages else "")
    worded = [then if text == MISFITS else text for text in statement["assumptions"] if text != TIMES]
    values["statement"]["assumptions"] = worded
    answer = replace(answer, statement=replace(answer.statement, earlier=True))
    assert (values.pop("security") is None) == (answer.deviating is None)
    lines = untimed(shown(answer)).splitlines()
    for line in () if answer.deviating is None else security(answer.deviating):
        lines.remove(line)
    lines.remove(f"- {TIMES}")
    place = lines.index(f"- {MISFITS}")
    lines[place : place + 1] = textwrap.wrap(f"- {then}", 108, subsequent_indent="  ")
    if answer.alignment is not None and answer.alignment.task.hidden:
        assert values["alignment"]["reuse"] is False
        assert not any(AGAIN in line for line in lines)
        values["alignment"]["reuse"] = True
        lines = [line + AGAIN if line.startswith("for lists ") else line for line in lines]
    if frozen := values.get("head", {}).get("frozen_epsilon"):
        lines = [line.replace(f"epsilon {format_rounded_up(frozen)} if", f"epsilon {frozen:.4g} if") for line in lines]
    return plain({"preflight": unmeasured(values), "text": lines})


def unmeasured(value):
    """Plain values without those that another machine would find otherwise; their keys stay."""
    if isinstance(value, dict):
        found = {key: "measured" if key == "seconds" else unmeasured(inside) for key, inside in value.items()}
        if found.get("instead"):
            found["instead"] = [found["instead"][0], "measured"]
        return found
    return [unmeasured(inside) for inside in value] if isinstance(value, list | tuple) else value


def untimed(text):
    text = re.sub(r"(about [\d,.]+ s|less than 0\.1 s)\b", "MEASURED s", text)
    return re.sub(r"\([\d,.]+ times", "(MEASURED times", text)


QUESTIONS: dict[str, Callable[[Study], Any]] = {
    "epsilon at a multiplier of 900 rows": lambda study: epsilons(study, NoiseAmount(multiplier=2.0), 900),
    "epsilon at an error of 900 rows": lambda study: epsilons(study, NoiseAmount(error=0.05), 900),
    "rows at an error": lambda study: least_rows(study, NoiseAmount(error=0.05)),
}


def answered(study, question):
    """The answer to an inverse question, or the sentence that says why there is none."""
    try:
        values = QUESTIONS[question](study).to_dict()
    except ColonnadeError as error:
        return {"error": [type(error).__name__, without_code(str(error))]}
    statement = values["statement"]
    # What each observer would learn; the words that go with it are those of the study, which are compared above.
    rows = [[row[name] for name in ("observer", "adjacency", "epsilon", "delta", "route")] for row in statement["rows"]]
    return {"answer": plain(values | {"statement": {"events": statement["events"], "rows": rows}})}


STUDIES = read("studies.json") if (FIXTURES / "studies.json").exists() else {}
PLANS = read("plans.json") if (FIXTURES / "plans.json").exists() else {}


@pytest.mark.parametrize("name", STUDIES)
def test_participants_of_both_releases_agree_on_a_study_and_are_told_the_same(name):
    study = Study.load(FIXTURES / "studies" / f"{name}.toml")
    assert agreed(study) == STUDIES[name]["agreed"]
    assert not differences(priced(study), STUDIES[name]["priced"])
    for question in QUESTIONS if name in PLANS else ():
        assert not differences(answered(study, question), PLANS[name][question]), question


# --- models


def used(model):
    """What a saved model still says and does, of people of whom it was not made."""
    people = {name: FIXTURES / "people" / f"{name}.csv" for name in PARTIES}
    found: dict[str, Any] = {"class": type(model).__name__, "parameters": model.get_params(), "repr": repr(model)}
    found |= {"schemas": {name: schema.digest for name, schema in model.schemas_.items()}, "summary": model.summary()}
    if hasattr(model, "transform"):
        found["transform"] = model.transform(people, id="person_id").tolist()
    if hasattr(model, "predict"):
        found["scores"] = model.scores(people, id="person_id").tolist()
        found["predict"] = model.predict(people, id="person_id").tolist()
    if hasattr(model, "predict") and hasattr(model, "partial"):
        found["parts"] = {name: model.partial(name, people[name]).tolist() for name in model.schemas_}
        if getattr(model, "_released", True) is not None:
            found["export"] = {name: value for name, value in model.to_json().items() if name != "privacy"}
    if hasattr(model, "predict_proba") and hasattr(model, "classes_"):
        found["chances"] = model.predict_proba(people, id="person_id").tolist()
    if hasattr(model, "guarantees_"):
        found["digest"] = model.digest
        found["guarantees"] = model.guarantees_.to_dict()
    if getattr(model, "ids_", None) is not None:
        joint = model.joint
        found["joint"] = [list(joint.ids), joint.scores.tolist(), joint.predictions.tolist()]
    return plain(found)


def page(name, model):
    """The report of a model, without the version of the software, and without the style that all pages share."""
    html = render(run_of(name, model), model.privacy_, model, section_of(model.kind))
    html = re.sub(r"colonnade \d[\w.+]*", "colonnade VERSION", html)
    return re.sub(r"(<style>).*?(</style>)", r"\1\2", html, flags=re.DOTALL)


def run_of(name, model):
    owners = list(model.schemas_)
    phases = {"encode": {"wall": 0.25, "cpu": 0.125, "rounds": 0, "messages": 0, "bytes": 0}}
    phases["open"] = {"wall": 0.5, "cpu": 0.25, "rounds": 1, "messages": 8, "bytes": 4096}
    traffic = {"sent": 4096, "received": 8192, "sealed_sent": 5000, "sealed_received": 9000, "messages": 8, "rounds": 1}
    facts = {"columns": ["a", "b"], "seat": True, "phases": phases, "traffic": traffic, "seconds": 1.5}
    noise = {"law": "skellam", "noise": "30000000", "noise_std": 6.5, "gamma": 4096, "rows_at_most": 1000}
    aligned = {"mode": "dh", "hidden": False, "on": ["person_id"], "matched": 40, "rows": dict.fromkeys(owners, 50)}
    return {
        "participant": "coordinator",
        "study": f"earlier {name}",
        "digest": "7f3a" * 16,
        "started": "2025-05-01T09:00:00.000+00:00",
        "ended": "2025-05-01T09:00:02.000+00:00",
        "seconds": 2.0,
        "status": "finished",
        "platform": "Python 3.11.9 on x86_64",
        "processors": 2,
        "participants": [*owners, "coordinator"],
        "alignment": aligned | {"reused": False, "seconds": 0.75},
        "task": {"kind": model.kind, **noise, "columns": 6, "primes": 3, "value_bits": 55, "system_bits": 65},
        "parties": dict.fromkeys(owners, facts),
        "coordinator": facts | {"columns": [], "seat": False},
    }


MODELS = sorted(path.name.removesuffix(".used.json") for path in (FIXTURES / "models").glob("*.used.json"))


@pytest.mark.parametrize("name", MODELS)
def test_a_saved_model_says_and_does_the_same_and_is_saved_again_as_it_was(name, tmp_path):
    """To the last digit with the versions of constraints.txt; older ones compute another last digit."""
    before, model = FIXTURES / "models" / f"{name}.json", Estimator.load(FIXTURES / "models" / f"{name}.json")
    for kept in sorted(before.parent.glob(f"{name}.kept.*")):
        party = model.load_kept(kept)
        assert model.save_kept(tmp_path / kept.name, party).read_bytes() == kept.read_bytes()
    assert not differences(used(model), read(f"models/{name}.used.json"))
    path = model.save(tmp_path / "model.json")
    assert not differences(json.loads(path.read_bytes()), json.loads(before.read_bytes()))
    assert OTHER_VERSIONS or path.read_bytes() == before.read_bytes()
    expected = gzip.decompress((FIXTURES / "reports" / f"{name}.html.gz").read_bytes()).decode()
    assert page(name, model) == expected


# --- a ledger


def test_a_ledger_is_read_and_verified(tmp_path):
    path, expected = tmp_path / "ledger.sqlite", read("ledger/earlier-ledger.json")
    shutil.copyfile(FIXTURES / "ledger" / "earlier-ledger.db", path)
    ledger = Ledger(path, clock=lambda: datetime.fromisoformat(expected["now"]))
    ledger.verify(expected["head"])
    assert (ledger.chained, ledger.head, len(ledger.lines())) == (True, expected["head"], expected["changes"])
    for entry, held in zip(ledger.entries(), expected["entries"], strict=True):
        said = vars(entry) | {"events": [event.to_dict() for event in entry.events], "trust": entry.trust.to_json()}
        assert {name: said[name] for name in held} == held
    for seen in (Observer.analyst(), Observer.party("bank")):
        spent = [ledger.epsilon_spent(seen, 1e-5), ledger.epsilon_spent(seen, 1e-5, days=30)]
        assert not differences(spent, expected["spent"][seen.label])


# --- a party's configuration and its alignments


def test_a_party_file_says_the_same():
    config = PartyConfig.load(FIXTURES / "party" / "party.toml")
    caps, *periods = [
        [[cap.selector, cap.epsilon, cap.delta] for cap in budgets]
        for budgets in (config.caps, *(period.budgets for period in config.periods))
    ]
    found = {"content": config.content.model_dump(mode="json"), "caps": caps, "approval": config.approval}
    found["periods"] = [[period.days, budgets] for period, budgets in zip(config.periods, periods, strict=True)]
    assert not differences(plain(found), read("party/party.json"))
    for name in ("align-hidden", "align-composite", "pca-moments", "glm-alternating"):
        config.check(Study.load(FIXTURES / "studies" / f"{name}.toml"))


@pytest.mark.parametrize("name", ["align-hidden", "align-composite"])
def test_an_earlier_alignment_is_found_again(name):
    config, study = (
        PartyConfig.load(FIXTURES / "party" / "party.toml"),
        Study.load(FIXTURES / "studies" / f"{name}.toml"),
    )
    keys = config.table(study.roster.schemas[config.name], study.aligning.plan).keys
    store = AlignmentStore(config.alignments, study, config.name)
    found, expected = store.find(keys, pytest.fail), read(f"party/{name}.json")
    assert (store.path.name, [value.hex() for value in keys.values]) == (expected["file"], expected["keys"])
    assert (found.token.hex(), found.size, found.reused) == (expected["token"], expected["size"], expected["reused"])
    for part in ("rows", "index", "slots"):
        held = getattr(found, part)
        assert (held if held is None else held.tolist()) == expected[part]


# --- frames


FRAMES: dict[str, Any] = {
    "nothing": None,
    "truth": [True, False],
    "whole numbers": [0, 1, -1, 127, 128, -128, -129, 2**63, -(2**200)],
    "numbers": [0.0, -0.5, 1e300, math.inf],
    "text": ["", "plain", "Grüße, 漢字"],
    "bytes": b"\x00\x01\xfe\xff",
    "nested": {"a": [None, {"b": [1, "two", 3.0, b"4"]}], "": {}, "c": []},
    "int64": np.arange(-3, 3, dtype=np.int64).reshape(2, 3),
    "int32": np.array([-(2**31), 2**31 - 1], dtype=np.int32),
    "float64": np.array([[0.1, -2.5], [math.inf, 1e-300]]),
    "uint8": np.arange(7, dtype=np.uint8),
    "uint32": np.array([0, 2**32 - 1], dtype=np.uint32),
    "flags": np.array([True, False, True]),
    "empty": np.zeros((0, 4), dtype=np.int64),
    "single": np.array(5, dtype=np.int64),
    "message": ["shares", {"block": np.arange(5, dtype=np.int64)}],
    "message of many": ["ready", {"rows": 5, "digest": b"\x07" * 4, "part": np.arange(3, dtype=np.uint8)}],
    "large": ["block", {"values": np.arange(1024, dtype=np.float64)}],
}


def test_frames_are_the_same_bytes():
    stored = {name: base64.b64decode(text) for name, text in read("frames.json").items()}
    assert set(stored) == set(FRAMES)
    for name, frame in stored.items():
        assert encode(FRAMES[name]) == frame, name
        assert encode(decode(frame)) == frame, name
