"""Studies of people who must be found first, and then again without finding them again."""

from __future__ import annotations

import json
import stat

import numpy as np
import pytest

from colonnade import PCA
from colonnade.errors import NO_PART, AlignmentError, CapacityError
from colonnade.study import Study
from tests.support.studies import Trial, edit, outcomes, play

ROWS = 100
HELD = ROWS * 19 // 20


def common(study):
    return len(set.intersection(*(people(study, name) for name in study.parties)))


def people(study, name):
    return {line.split(",")[0].strip('"') for line in (study.folder / name / f"{name}.csv").read_text().split()[1:]}


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """A study of three parties whose alignment later ones can use."""
    study = Trial(tmp_path_factory.mktemp("aligned") / "s", ROWS)
    for name in study.parties:
        study.edit(f"{name}/party.toml", r"^epsilon = .*", "epsilon = { analyst = 100.0 }")
        study.edit(f"{name}/party.toml", r"^align = \[[^]]*\]", 'align = ["ot", "dh", "helper"]')
    study.start_all(threads=True)
    study.end_well()
    return study


def written(study, name, *edits):
    path = study.folder / f"{name}.toml"
    path.write_text(study.file.read_text())
    edit(path, ('name = "trial"', f'name = "{name}"'), ("n_components = 2", "n_components = 3"), *edits)
    return Study.load(path)


def later(study, name, *edits):
    """Another study of the same people, in threads over TLS; everybody's run.json."""
    out = study.folder / "later" / name
    play(written(study, name, *edits), out)
    places = {"coordinator": out} | {party: out / "parties" / party for party in study.parties}
    return {who: json.loads((place / "run.json").read_text()) for who, place in places.items()}


def events(study, name, who):
    lines = (study.folder / "later" / name / "parties" / who / "events.jsonl").read_text().splitlines()
    return [json.loads(line)["what"] for line in lines]


def kept(study):
    return {path: path.read_bytes() for path in study.folder.glob("*/alignments/*")}


def sent_to_owners(run):
    return sum(counts["payload_sent"] for peer, counts in run["traffic"].items() if peer != "coordinator")


def test_people_are_found_and_counted(first):
    models = [PCA.load(first.out(name) / "model.json") for name in ("coordinator", *first.parties)]
    for model in models:
        assert np.array_equal(model.components_, models[0].components_)
        assert first.study().aligning.sentence in model.privacy_.assumptions
    settings = {"mode": "dh", "hidden": False, "on": ["person_id"], "matched": common(first), "reused": False}
    for name in first.parties:
        facts = first.run_json(name)["alignment"]
        assert facts.pop("seconds") >= 0
        assert facts == settings | {"rows": HELD, "missing": 0, "repeated": 0}
        whats = [line["what"] for line in first.happened(name)]
        assert whats.index("connected") < whats.index("aligned") < whats.index("first share")
        (file,) = (first.folder / name / "alignments").iterdir()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    run = first.run_json("coordinator")
    assert run["alignment"]["matched"] == common(first) < HELD
    assert run["alignment"]["rows"] == dict.fromkeys(first.parties, HELD)
    assert "align" in run["phases"]
    # nothing of a table or key is in what participants write down
    secrets = [*people(first, "bank"), (first.folder / "bank" / "bank.key").read_text().splitlines()[1]]
    for path in (first.folder / "runs").rglob("*"):
        if path.is_file():
            text = path.read_text()
            assert not any(secret in text for secret in secrets), path


def test_a_later_study_uses_the_alignment_again_in_whatever_order(first):
    table = first.folder / "shop" / "shop.csv"
    head, *rows = table.read_text().splitlines(keepends=True)
    table.write_text(head + "".join(reversed(rows)))
    runs = later(first, "again")
    for name in first.parties:
        assert runs[name]["alignment"]["reused"]
        assert runs[name]["alignment"]["matched"] == common(first)
        assert "alignment used again" in events(first, "again", name)
        least = 32 * common(first)  # one group element of 32 bytes a person
        assert sent_to_owners(runs[name]) < sent_to_owners(first.run_json(name)) - least
    assert runs["coordinator"]["alignment"]["reused"]


def test_a_damaged_file_or_other_people_mean_a_new_alignment_for_all(first):
    (file,) = (first.folder / "bank" / "alignments").iterdir()
    file.write_bytes(file.read_bytes()[:1000])
    table = first.folder / "clinic" / "clinic.csv"
    lines = table.read_text().splitlines(keepends=True)
    table.write_text("".join(lines[:-1]))
    runs = later(first, "changed")
    assert "alignment store damaged: aligning again" in events(first, "changed", "bank")
    assert "the keys have changed since they were aligned: aligning again" in events(first, "changed", "clinic")
    for name in first.parties:
        assert not runs[name]["alignment"]["reused"]
        assert runs[name]["alignment"]["matched"] == common(first)
        assert "aligned" in events(first, "changed", name)
    assert all(run["alignment"]["reused"] for run in later(first, "and-again").values())
    before = kept(first)
    anew = later(first, "anew", ('on = "person_id"', 'on = "person_id"\nreuse = false'))
    assert not any(run["alignment"]["reused"] for run in anew.values())
    assert kept(first) == before


def test_nobody_in_common_or_a_list_that_is_too_long_ends_a_study_before_anything_is_spent(first):
    states = first.states("bank")
    table = first.folder / "bank" / "bank.csv"
    text = table.read_text()
    table.write_text(text.replace('"P', '"Q'))
    ended = outcomes(written(first, "nobody"), first.folder / "later" / "nobody")
    table.write_text(text)
    assert all("nobody is common to bank, shop, clinic" in str(end) for end in ended.values())
    for name in first.parties:
        assert isinstance(ended[name], AlignmentError)
        assert len(ended[name].examples) == 3
        shown = [example.split("'")[1] for example in ended[name].examples]
        for path in (first.folder / "later" / "nobody").rglob("*"):
            assert path.is_dir() or not any(value in path.read_text() for value in shown), path
    padded = written(first, "padded", ('on = "person_id"', f'on = "person_id"\npad_to = {HELD - 9}'))
    ended = outcomes(padded, first.folder / "later" / "padded")
    for name in first.parties:
        assert isinstance(ended[name], CapacityError)
        assert f"at most {HELD - 9} a party: raise pad_to" in str(ended[name])
    assert NO_PART in str(ended["coordinator"])
    assert first.states("bank") == [*states, "released", "released"]


@pytest.mark.parametrize("mode", ["dh", "helper"])
def test_a_study_in_which_nobody_learns_who_matched(first, mode):
    runs = later(first, f"hidden-{mode}", ('on = "person_id"', f'on = "person_id"\nhidden = true\nmode = "{mode}"'))
    for name in first.parties:
        assert runs[name]["alignment"]["matched"] is None
        assert runs[name]["alignment"]["hidden"]
    assert runs["coordinator"]["alignment"]["matched"] is None, "the coordinator knows, and does not write it down"


def test_a_hidden_alignment_does_not_tell_whether_anybody_s_keys_have_changed(first):
    """A second study of the same lists and one after a party's list has changed are the same to all the others."""
    hidden = ('on = "person_id"', 'on = "person_id"\nhidden = true\nreuse = true')
    before = kept(first)
    later(first, "hidden-first", hidden)
    same = later(first, "hidden-same", hidden)
    table = first.folder / "clinic" / "clinic.csv"
    text = table.read_text()
    head, *rows = text.splitlines(keepends=True)
    table.write_text(head + "".join(rows[:-1]) + rows[-1].replace('"P', '"Q'))  # as long as before
    changed = later(first, "hidden-changed", hidden)
    table.write_text(text)
    for who in ("coordinator", "bank", "shop"):
        seen = [run[who]["alignment"] | {"seconds": 0} for run in (same, changed)]
        assert seen[0] == seen[1]
        assert not seen[0]["reused"]
        for peer, seen in same[who]["traffic"].items():
            assert seen["messages_received"] == changed[who]["traffic"][peer]["messages_received"]
    for who in ("bank", "shop"):
        assert events(first, "hidden-same", who) == events(first, "hidden-changed", who)
    assert kept(first) == before
