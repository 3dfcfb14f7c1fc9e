"""``[align]`` of a study and ``[keys]`` of a party: what is read, refused, agreed on, priced, kept and used again."""

from __future__ import annotations

import json
import math
import os
import stat
from contextlib import nullcontext
from dataclasses import fields

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from colonnade import PCA
from colonnade.errors import (
    NO_PART,
    AlignmentError,
    CapacityError,
    DataError,
    PolicyError,
    SchemaError,
    StorageError,
    StudyError,
)
from colonnade.privacy import Statement
from colonnade.privacy.statement import UNMATCHED
from colonnade.protocols.align import AlignedRows, messages
from colonnade.study import PartyConfig, Study, preflight
from colonnade.study.alignment_session import AlignmentStore
from colonnade.study.study_file import KeySection
from colonnade.tables import Schema, number, read_table
from colonnade.tables.keys import Key, KeyPlan
from tests.support.errors import raises
from tests.support.studies import Trial, check_words, edit, outcomes, play, study_text

STUDY = study_text()
ALIGN = '[align]\non = ["name", "born"]\n'
KEYS = '[align.keys.name]\ncase = "fold"\nblanks = "collapse"\naccents = "strip"\n[align.keys.born]\nkind = "date"\n'
PARTY = """\
name = "a"
data = "a.csv"
key = "a.key"
ledger = "l.sqlite"
[keys]
name = "who"
[keys.born]
column = "birth"
format = "%d.%m.%Y"
[policy]
tasks = ["pca"]
columns = "all"
[policy.budget]
epsilon = 3.0
"""
SUMS = STUDY.replace('kind = "pca"', 'kind = "polynomial"\nexpressions = ["a.a0 * b.b0"]')
THIRD = '[parties.c]\nschema = "c.toml"\n'


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("aligned")
    for name in "abc":
        Schema({f"{name}{k}": number(0, 1) for k in range(2)}).save(place / f"{name}.toml")
    (place / "a.csv").write_text(
        "who,birth,a0,a1\n Ada  Byron ,10.12.1815,0,1\nADÁ byron,11.12.1815,1,0\n,1.1.1900,0,0\n"
    )
    return place


def load(folder, text=STUDY + ALIGN):
    (folder / "STUDY.toml").write_text(text)
    return Study.load(folder / "STUDY.toml")


def aligned(folder, said=""):
    return load(folder, STUDY + ALIGN + said)


def party(folder, old="", new=""):
    assert old in PARTY
    (folder / "party.toml").write_text(PARTY.replace(old, new) if old else PARTY)
    return PartyConfig.load(folder / "party.toml")


# --- the study file


def test_a_study_says_how_people_are_matched(folder):
    study, unaligned = (
        aligned(folder, f'mode = "helper"\nduplicates = "refuse"\nat_least = 50\n{KEYS}'),
        load(folder, STUDY),
    )
    task = study.aligning
    assert task.keys == (
        Key("name", case="fold", blanks="collapse", accents="strip"),
        Key("born", kind="date"),
    )
    assert (task.mode, task.hidden, task.duplicates, task.at_least) == ("helper", False, "refuse", 50)
    assert task.trust == study.roster.trust
    assert study.statement.assumptions[-1] == task.sentence
    assert UNMATCHED not in study.statement.assumptions
    assert (unaligned.statement.assumptions[-1], unaligned.aligning) == (UNMATCHED, None)
    assert not unaligned.roster.hidden
    assert aligned(folder, "hidden = true\n").roster.hidden
    assert load(folder, STUDY + '[align]\non = "id"\n').aligning.keys == (Key("id"),)
    for each in (study, unaligned):
        assert Statement.from_dict(each.statement.to_dict()) == each.statement
    rules = {field.name: field.default for field in fields(Key) if field.name != "name"}
    assert {name: KeySection.model_fields[name].default for name in rules} == rules


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[align]\n", ("ST595", "align.on")),
        ("[align]\non = []\n", ("VA167", "align.on")),
        ('[align]\non = ["id", "id"]\n', ("VA169", "id", "align.on")),
        ('[align]\non = [" "]\n', ("VA168", "align.on")),
        ("[align]\non = 3\n", ("VA166", "align.on")),
        ("[align]\non = [3]\n", ("ST595", "align.on.", "0")),
        ('align = "dh"\n' + STUDY, "ST595"),
        ('[align]\non = "id"\nkeys = 3\n', ("ST595", "align.keys")),
        ('[align]\non = "id"\nhidden = "yes"\n', ("ST595", "align.hidden")),
        ('[align]\non = "id"\nreuse = 0\n', ("ST595", "align.reuse")),
        ('[align]\non = "id"\nby = 1\n', ("ST595", "align.by")),
        ('[align]\non = "id"\nmode = "psi"\n', ("ST595", "align.mode")),
        ('[align]\non = "id"\nduplicates = "last"\n', ("ST595", "align.duplicates")),
        ('[align]\non = "id"\nduplicates = "first"\n', ("VA770", "align.duplicates", '"drop"')),
        ('[align]\non = "id"\nat_least = 0\n', ("ST595", "align.at_least")),
        ('[align]\non = "id"\nhidden = true\nat_least = 2\n', "VA172"),
        ('[align]\non = "id"\nmode = "fuzzy"\npad_to = 9\n', "VA174"),
        ('[align]\non = "id"\nat_least = 10\npad_to = 9\n', "VA175"),
        ('[align]\non = "id"\nsimilarity = 0.9\n', "VA173"),
        ('[align]\non = "id"\nmode = "fuzzy"\nhidden = true\n', "VA171"),
        ('[align]\non = "id"\nmode = "fuzzy"\nsimilarity = 1.5\n', ("ST595", "align.similarity")),
        ('[align]\non = "id"\n[align.keys.name]\n', "VA170"),
        ('[align]\non = "id"\n[align.keys.id]\nkind = "float"\n', ("ST595", "align.keys.id.kind")),
        ('[align]\non = "id"\n[align.keys.id]\nfold = true\n', ("ST595", "align.keys.id.fold")),
        (THIRD + '[align]\non = "id"\nmode = "fuzzy"\n', ("VA176", "3")),
        (SUMS + '[align]\non = "id"\nhidden = true\n', "ST082"),  # hidden members are for second moments
    ],
)
def test_what_is_wrong_is_named(folder, text, message):
    with raises(StudyError, message):
        _ = load(folder, text if "[task]" in text else STUDY + text).task


@pytest.mark.parametrize(
    ("parties", "settings", "message"),
    [
        ("", "at_least = 1_001", ("VA177", "1001", "1000")),
        ("", "at_least = 1_000", None),
        ("", "hidden = true\npad_to = 501", ("VA178", "501", "1002", "2", "1000")),
        ("", "hidden = true\npad_to = 500", None),
        (THIRD, "hidden = true\npad_to = 500", ("VA178", "500", "1500", "3")),
        (THIRD, "pad_to = 500", None),
        ("", "pad_to = 5_000", None),  # the list alone is so long
    ],
)
def test_what_no_lists_can_meet_is_refused_at_once(folder, parties, settings, message):
    text = STUDY.replace('"pca"', '"pca"\nrows_at_most = 1_000') + parties + ALIGN + settings + "\n"
    with nullcontext() if message is None else raises(StudyError, message):
        assert load(folder, text).aligning


def test_everyone_agrees_on_how_people_are_matched(folder):
    said = ("", 'mode = "dh"\n', 'mode = "helper"\n', "hidden = true\n", "at_least = 2\n", KEYS, "reuse = false\n")
    digests = {load(folder, STUDY).digest, *(aligned(folder, each).digest for each in said)}
    assert len(digests) == len(said) + 1
    same = ("", 'mode = "ot"\n[align.keys.born]\nkind = "text"\n')
    assert len({str(aligned(folder, each).aligning.agreement) for each in same}) == 1


# --- the party file


def test_a_party_says_where_its_keys_are(folder):
    study = aligned(folder, KEYS)
    schema, plan = study.roster.schemas["a"], study.aligning.plan
    table = party(folder).table(schema, plan)
    found = [table.keys.parts(k) for k in range(len(table.keys))]
    assert found == [("ada byron", "1815-12-10"), ("ada byron", "1815-12-11")]
    assert (table.rows, table.keys.missing, table.keys.repeated) == (3, 1, 0)
    with raises(DataError, "DA154", "a.csv", "birt"):
        party(folder, 'key = "a.key"', 'id = "birt"\nkey = "a.key"').table(schema, plan)
    with raises(DataError, "DA178", "party.toml", "born", "text"):
        party(folder).table(schema, aligned(folder).aligning.plan)
    with raises(StudyError, "ST575", "party.toml"):
        party(folder).table(schema)
    with raises(SchemaError, "SC064", "key", "a0"):
        party(folder, '"who"', '"a0"').table(schema, plan)


def test_a_single_key_is_the_id_column(folder):
    keys = PARTY[PARTY.index("[keys]") : PARTY.index("[policy]")]
    config = party(folder, keys, "")
    (folder / "party.toml").write_text(config.path.read_text().replace('key = "a.key"', 'id = "who"\nkey = "a.key"'))
    config, study = PartyConfig.load(config.path), load(folder, STUDY + '[align]\non = "person"\nduplicates = "drop"\n')
    assert len(config.table(study.roster.schemas["a"], study.aligning.plan).keys) == 2
    with pytest.raises(DataError) as wrong:
        config.table(study.roster.schemas["a"], aligned(folder).aligning.plan)
    check_words(str(wrong.value), "a.csv: the key: columns 'name', 'born' are not there", "under [keys] of its file")
    assert "a0" not in str(wrong.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "who"', 'name = ""', "ST573"),
        ('column = "birth"', "", ("ST573", "keys.born.column")),
        ('column = "birth"', 'colum = "birth"', ("VA195", "keys.born")),
        ('"%d.%m.%Y"', '"%d.%m"', ("SC046", "keys.born")),
        ("[policy]\n", '[policy]\nalign = ["psi"]\n', "ST573"),
        ("[policy]\n", '[policy]\nalign = "dh"\n', ("ST573", "policy.align")),
        ("[policy]\n", '[policy]\nhidden = "yes"\n', ("ST573", "policy.hidden")),
        ('columns = "all"', 'columns = "age"', ("VA204", "policy.columns")),
        ('name = "who"', "name = 3", ("VA206", "keys.name")),
    ],
)
def test_what_is_wrong_in_a_party_file_is_named(folder, old, new, message):
    with raises(StudyError, message, "party.toml"):
        party(folder, old, new)


@pytest.mark.parametrize(
    ("said", "allowed", "refused"),
    [
        ('mode = "ot"\n', "", 'align = ["dh"]'),
        ('mode = "dh"\n', "", 'align = ["ot"]'),
        ('mode = "helper"\n', 'align = ["helper"]', ""),  # weaker modes are named, or not allowed
        ('mode = "fuzzy"\n', 'align = ["fuzzy"]', ""),
        ("hidden = true\n", "hidden = true", "align = []"),
    ],
)
def test_a_policy_allows_the_modes_that_trust_no_helper_unless_it_says_otherwise(folder, said, allowed, refused):
    study = aligned(folder, said + KEYS)
    party(folder, "[policy]", f"[policy]\n{allowed}").check(study)
    with raises(PolicyError, "PO024", study.aligning.mode):
        party(folder, "[policy]", f"[policy]\n{refused}").check(study)
    party(folder, "[policy]", f"[policy]\n{refused}").check(load(folder, STUDY))
    if "hidden" in allowed:
        for seen in (load(folder), load(folder, STUDY)):
            with raises(PolicyError, "PO023"):
                party(folder, "[policy]", f"[policy]\n{allowed}").check(seen)


# --- the pre-flight


def test_the_preflight_compares_the_two_modes_for_equal_keys(folder):
    padded = {mode: aligned(folder, f'pad_to = 900_000\nmode = "{mode}"\n') for mode in ("ot", "dh", "helper")}
    ot, dh, helper = (preflight(study).alignment for study in padded.values())
    assert ot.instead == dh.instead == ("helper", helper.seconds)
    assert helper.instead == ("dh", dh.seconds)
    assert dh.seconds > 10 * ot.seconds > 10 * helper.seconds
    assert tuple(preflight(padded["dh"]).to_dict()["alignment"]["instead"]) == dh.instead


def test_lists_are_priced_as_long_as_they_are(folder):
    padded = aligned(folder, "pad_to = 5_000\n")
    found = preflight(padded, 360)
    assert (found.run.rows, found.alignment.rows, found.alignment.task.pad_to) == (360, 5_000, 5_000)
    assert found.alignment.loads == preflight(load(folder), 5_000).alignment.loads
    assert preflight(padded).run.rows == 5_000
    fuzzy = aligned(folder, 'mode = "fuzzy"\n')
    for study, most, rows in ((padded, "5000", 5_001), (fuzzy, "50000", 400_000)):
        with raises(CapacityError, "CA034", most, rows):
            preflight(study, rows)
    similar = preflight(fuzzy).alignment
    assert (similar.rows, similar.to_dict()["similarity"], similar.instead) == (50_000, 0.85, None)
    assert preflight(aligned(folder, 'mode = "fuzzy"\nsimilarity = 0.9\n'), 9).alignment.task.similarity == 0.9
    seen, hidden, slots = (
        preflight(aligned(folder, said), 360) for said in ("", "hidden = true\n", "hidden = true\npad_to = 720\n")
    )
    assert hidden.run.rows == seen.run.rows == slots.run.rows == hidden.alignment.rows == 360
    assert slots.run.bytes_total > 1.8 * hidden.run.bytes_total > 1.8 * 1.8 * seen.run.bytes_total
    limited = STUDY.replace('"pca"', '"pca"\nrows_at_most = 1_000') + ALIGN + "hidden = true\n"
    assert preflight(load(folder, limited)).run.rows == 500


# --- what a party keeps


def keys_of(people):
    frame = pa.table({"id": [f"p{person}" for person in people], "a0": [0.5] * len(people)})
    schema = Schema({"a0": number(0, 1)})
    return read_table(frame, schema, id="id", keys=KeyPlan((Key("id"),))).keys


def made(keys, rows, hidden):
    rows = np.array(rows, dtype=np.int64)
    if hidden:
        return AlignedRows(b"t" * 16, 2 * len(keys), rows, slots=2 * np.arange(len(rows), dtype=np.int64))
    return AlignedRows(b"t" * 16, len(rows), rows, index=np.arange(16 * len(rows), dtype=np.uint8).reshape(-1, 16))


@settings(max_examples=20, deadline=None)
@given(data=st.data(), hidden=st.booleans())
def test_a_reordered_table_gets_the_same_alignment(folder, data, hidden):
    count = data.draw(st.integers(1, 30))
    before, after = (keys_of(data.draw(st.permutations(range(count)))) for _ in range(2))
    chosen = data.draw(st.permutations(range(count)))[: count if hidden else data.draw(st.integers(0, count))]
    first = made(before, chosen, hidden)
    store = AlignmentStore(folder / "store", load(folder), "a")
    store.keep(before, first)
    found = store.find(after, pytest.fail)
    assert (found.token, found.size, found.reused) == (first.token, first.size, True)
    assert [after.values[row] for row in found.rows] == [before.values[row] for row in first.rows]
    for part in ("index", "slots"):
        assert np.array_equal(getattr(found, part), getattr(first, part))
    assert (found.slots is None) != hidden


def test_other_people_are_aligned_anew(folder, tmp_path):
    store, said = AlignmentStore(tmp_path, load(folder), "a"), []
    assert store.find(keys_of(range(10)), said.append) is None
    assert said == []
    store.keep(keys_of(range(10)), made(range(10), [3, 1, 4], hidden=False))
    for people in (range(9), range(11), [*range(9), 11]):
        assert store.find(keys_of(people), said.append) is None
    assert said == ["the keys have changed since they were aligned: aligning again"] * 3


def test_a_file_belongs_to_a_party_its_partners_and_settings(folder, tmp_path):
    pins = '[pins]\na = "sha256:1"\nb = "sha256:2"\n'
    first = AlignmentStore(tmp_path, load(folder, STUDY + ALIGN + pins), "a").path
    again = STUDY.replace('name = "s"', 'name = "t"').replace('kind = "pca"', 'kind = "pca"\nn_components = 1')
    assert AlignmentStore(tmp_path, load(folder, again + ALIGN + "reuse = true\n" + pins), "a").path == first
    others = [
        (STUDY + ALIGN + pins, "b"),
        (STUDY + ALIGN + pins.replace("sha256:2", "sha256:3"), "a"),
        (STUDY + ALIGN + "at_least = 2\n" + pins, "a"),
        (STUDY + THIRD + ALIGN + pins, "a"),
    ]
    assert first not in {AlignmentStore(tmp_path, load(folder, text), who).path for text, who in others}


def test_what_is_kept_is_private_and_names_nobody(folder, tmp_path):
    keys = keys_of(range(100, 150))
    store = AlignmentStore(tmp_path / "alignments", load(folder), "a")
    for _ in range(2):
        store.keep(keys, made(keys, range(50), hidden=False))
    (path,) = (tmp_path / "alignments").iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    content = path.read_bytes()
    assert not any(value in content or value[4:] in content for value in keys.values)


def test_a_damaged_file_is_never_believed_and_never_fatal_and_one_that_cannot_be_written_is_named(folder, tmp_path):
    keys, said = keys_of(range(5)), []
    store = AlignmentStore(tmp_path, load(folder), "a")
    store.keep(keys, made(keys, [4, 2], hidden=False))
    whole = store.path.read_bytes()
    for place in range(0, len(whole), 31):
        store.path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        found = store.find(keys, said.append)
        assert found is None or (found.token == b"t" * 16 and found.rows.tolist() == [4, 2])
    for damaged in (b"", whole[:100], whole[: len(whole) // 2], b"\x80\x04N."):
        store.path.write_bytes(damaged)
        assert store.find(keys, said.append) is None
    store.path.unlink()
    os.mkfifo(store.path)
    assert store.find(keys, said.append) is None
    assert set(said) == {"alignment store damaged: aligning again"}
    (tmp_path / "alignments").touch()
    with raises(StorageError, "SO037"):
        AlignmentStore(tmp_path / "alignments", load(folder), "a").keep(keys, made(keys, [4, 2], hidden=False))


# --- people who must be found first, and then again without finding them again

ROWS = 100
HELD = ROWS * 19 // 20


def common(study):
    return len(set.intersection(*(people(study, name) for name in study.parties)))


def people(study, name):
    return {line.split(",")[0].strip('"') for line in (study.folder / name / f"{name}.csv").read_text().split()[1:]}


@pytest.fixture(scope="module")
def first(tmp_path_factory):
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
    settings = {"mode": "ot", "hidden": False, "on": ["person_id"], "matched": common(first), "reused": False}
    for name in first.parties:
        facts = first.run_json(name)["alignment"]
        assert facts.pop("seconds") >= 0
        assert facts == settings | {"rows": HELD, "missing": 0, "repeated": 0}
        whats = [line["what"] for line in first.happened(name)]
        assert whats.index("connected") < whats.index("aligned") < whats.index("first share")
    run = first.run_json("coordinator")
    assert run["alignment"]["matched"] == common(first) < HELD
    assert run["alignment"]["rows"] == dict.fromkeys(first.parties, HELD)
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


def test_a_hidden_alignment_does_not_tell_whether_anybody_s_keys_have_changed(first, monkeypatch):
    """A second study of the same lists and one after a party's list has changed are the same to all the others."""
    monkeypatch.setattr(messages, "_PAUSE", math.inf)  # signs of life in between are due by the clock alone
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
