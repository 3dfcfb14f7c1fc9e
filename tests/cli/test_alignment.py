"""What the command line says about alignment: before, afterwards, and when nothing matches."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from colonnade.cli import show
from colonnade.cli.output import about, complain, speak_json
from colonnade.errors import AlignmentError, DataError, IdentityError, PolicyError, StudyError
from colonnade.study import PartyConfig, Study
from tests.support.ports import free_port

EXAMPLE = Path(__file__).parents[2] / "examples" / "three-organisations"
PARTIES = ("bank", "shop", "clinic")


@pytest.fixture
def study(tmp_path):
    """The example with short tables, of which the bank's is the shortest."""
    made = shutil.ignore_patterns("certs", "alignments", "*.key", "*.crt", "*.sqlite*")
    shutil.copytree(EXAMPLE, tmp_path / "s", ignore=made)
    for name, rows in zip(PARTIES, (20, 30, 40), strict=True):
        table = tmp_path / "s" / name / f"{name}.csv"
        table.write_text("".join(table.read_text().splitlines(keepends=True)[: 1 + rows]))
    path = tmp_path / "s" / "STUDY.toml"
    path.write_text(path.read_text().replace("7443", str(free_port())))
    return path


def edit(path, *changes):
    text = path.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)


def hint(study, *configs):
    commands = [f"  colonnade keys {study} {config}\n" for config in configs]
    return "".join(["to see a party's own keys, as they are compared:\n", *commands])


# --- before


def test_privacy_says_how_people_are_matched_and_who_learns_what(colonnade, study):
    text = colonnade("privacy", study, "--rows", 3000)
    found = text.partition("ALIGNMENT, mode ot")[2]
    for words in (
        "person_id, as text",
        "equal keys in two rows",
        "for lists of 3,000: about",
        "on the wire",
        "used again",
    ):
        assert words in found, words
    facts = colonnade("privacy", study, "--rows", 3000, "--json")["alignment"]
    assert facts["keys"] == [
        {"name": "person_id", "kind": "text", "case": "keep", "blanks": "trim", "unicode": "NFC", "accents": "keep"}
    ]
    assert (facts["mode"], facts["rows"], facts["hidden"]) == ("ot", 3000, False)
    for leak in facts["leakage"]:
        for cell in leak.values():
            assert set(cell.split()) <= set(found.split())


def test_either_exact_mode_says_what_the_other_would_take_and_promise(colonnade, study):
    pooled = "the coordinator and any one owner who pool what they see can try out every key on every list"
    slow, fast = [], []
    edit(study, ('mode = "ot" ', 'mode = "dh" '))
    for mode, took in (("dh", slow), ("helper", fast)):
        edit(study, ('mode = "dh" ', f'mode = "{mode}" '))
        took += [colonnade("privacy", study), colonnade("privacy", study, "--json")["alignment"]["seconds"]]
    ratio = slow[1] / fast[1]
    assert ratio > 2
    times = f"{ratio:,.0f} times" if ratio >= 10 else f"{ratio:.1f} times"
    assert f"for lists of 100,000: about {slow[1]:,.1f} s" in slow[0]
    assert f"mode helper would take about {fast[1]:,.1f} s ({times} faster), but there {pooled}" in slow[0]
    assert f"for lists of 100,000: about {fast[1]:,.1f} s" in fast[0]
    cannot = f"in mode dh they cannot, and it would take about {slow[1]:,.1f} s ({times} as long)"
    assert f"here {pooled}; {cannot}" in fast[0]


def test_padded_lists_are_priced_as_such(colonnade, study):
    edit(study, ('mode = "ot" ', 'pad_to = 5_000\nmode = "ot" '))
    assert "for lists padded to 5,000: about" in colonnade("privacy", study, "--rows", 360)


def test_a_party_sees_what_alignment_tells_before_it_is_asked(colonnade, study, tmp_path):
    edit(study, ('mode = "ot" ', 'mode = "helper" '))
    words = ["party", study, study.parent / "bank" / "party.toml", "--out", tmp_path / "out"]
    said = colonnade(*words, code=IdentityError.exit_code)  # nobody has made keys, which is the first thing looked for
    shown, _, refused = said.partition("colonnade: ")
    assert "bank in 'three-organisations': this is what it costs" in shown
    assert "ALIGNMENT, mode helper" in shown
    assert "who pool what they see can try out every key" in shown
    for leak in Study.load(study).aligning.leakage:
        for cell in (leak.who, leak.learns, leak.beyond):
            assert set(cell.split()) <= set(shown.split())
    assert "certificate" in refused


def test_fuzzy_is_said_to_be_weaker(colonnade, study):
    edit(
        study,
        ('mode = "ot" ', 'similarity = 0.9\nmode = "fuzzy" '),
        ('[parties.clinic]\nschema = "schemas/clinic.toml"\n', ""),
        (', "clinic"]', ', "coordinator"]'),
    )
    said = colonnade("privacy", study)
    assert "mode fuzzy: first the parties pair the people whose keys are similar, 0.9 of 1 or more" in said
    assert "weaker than the exact modes: the coordinator compares Bloom filters" in said
    assert "for lists of 50,000: about" in said


def test_hidden_members_and_other_rules(colonnade, study):
    edit(
        study,
        (
            'on = "person_id" ',
            'hidden = true\nduplicates = "drop"\nreuse = false\non = ["who", "birth"] ',
        ),
        (
            "[committee]",
            '[align.keys.who]\ncase = "fold"\naccents = "strip"\n\n[align.keys.birth]\nkind = "date"\n\n[committee]',
        ),
    )
    found = colonnade("privacy", study).partition("ALIGNMENT")[2]
    for words in (
        "and nobody learns who they are", "who, as text: capitals as small letters, without blanks at the ends, "
        "without accents, Unicode NFC", "birth, as a date, yyyy-mm-dd", "no row stays",
        "nobody is told whether anybody matched",
    ):  # fmt: skip
        assert words in found, words
    assert "used again" not in found


def test_without_alignment_nothing_is_said_of_it(colonnade, study):
    text = study.read_text()
    study.write_text(text[: text.index("[align]")] + text[text.index("[committee]") :])
    assert "ALIGNMENT" not in colonnade("privacy", study)
    assert colonnade("privacy", study, "--json")["alignment"] is None
    said = colonnade("keys", study, study.parent / "bank" / "party.toml", code=StudyError.exit_code)
    assert "has no [align]" in said


def test_a_party_is_shown_its_own_keys(colonnade, study):
    config, table = study.parent / "bank" / "party.toml", study.parent / "bank" / "bank.csv"
    head, first, second, third, *rest = table.read_text().splitlines(keepends=True)
    ids = [line.split(",")[0].strip('"') for line in (first, second, third)]
    spoilt = [first.replace(ids[0], ""), second.replace(ids[1], f"  {ids[1]} "), third, *rest]
    table.write_text("".join([head, *spoilt]))
    edit(study, ('on = "person_id" ', 'duplicates = "first"\non = "person_id" '))
    text = colonnade("keys", study, config)
    assert f"20 rows of {table}, 19 keys; rows left out: 1 without a full key" in text
    assert f"  person_id '{ids[1]}'\n  person_id '{ids[2]}'" in text
    table.write_text("".join([head, *spoilt, third]))
    facts = colonnade("keys", study, config, "--json")
    assert facts["examples"][0] == f"person_id '{ids[1]}'"
    assert len(facts.pop("examples")) == 3
    expected = {"party": "bank", "on": ["person_id"], "rows": 21, "keys": 19, "missing": 1, "repeated": 1}
    assert facts == {"study": "three-organisations", **expected}
    edit(study, ('duplicates = "first"', 'duplicates = "refuse"'))
    assert "occurs more than once" in colonnade("keys", study, config, code=DataError.exit_code)
    edit(config, ('name = "bank"', 'name = "baker"'))
    assert "is not a party" in colonnade("keys", study, config, code=PolicyError.exit_code)


def test_the_doctor_reads_a_table_once_and_says_what_is_wrong_once(colonnade, study, monkeypatch):
    reads = []
    table = PartyConfig.table
    monkeypatch.setattr(PartyConfig, "table", lambda *given: reads.append(given) or table(*given))
    config = study.parent / "bank" / "party.toml"
    found = checks(colonnade, study, config)
    assert (found["table"]["level"], found["keys"]["level"]) == ("good", "good")
    assert "20 keys, person_id in column 'person_id' (ot); rows left out: none" in found["keys"]["detail"]
    edit(study, ('mode = "ot" ', 'pad_to = 19\nmode = "ot" '))
    found = checks(colonnade, study, config)
    assert (found["table"]["level"], found["keys"]["level"]) == ("good", "bad")
    edit(study, ('on = "person_id" ', 'on = ["name", "birth"] '))
    found = checks(colonnade, study, config)
    assert found["table"]["level"] == "bad"
    assert "keys" not in found
    assert len(reads) == 3


def checks(colonnade, study, config):
    """What the doctor finds; it is never content here, where nobody has made keys."""
    return {check["what"]: check for check in colonnade("doctor", study, config, "--json", code=1)["checks"]}


def test_a_new_configuration_shows_where_keys_are_named(colonnade, tmp_path):
    path = Path(colonnade("init", "party", "carl", "--out", tmp_path / "carl", "--json")["config"])
    fresh = PartyConfig.load(path)
    assert fresh.content.keys == {}
    edit(
        path,
        ("# [keys]", "[keys]"),
        ("# name = ", "name = "),
        ("# birth = ", "birth = "),
        ("# hidden = true ", "hidden = true "),
        ('id = "person_id" ', "# "),
    )
    named = PartyConfig.load(path).content
    assert {key: (part.column, part.format) for key, part in named.keys.items()} == {
        "name": ("client", None),
        "birth": ("born", "%d.%m.%Y"),
    }
    assert named.id is None
    assert named.policy.hidden is True
    assert fresh.content.policy.hidden is False


def test_a_table_without_ids_can_be_checked(colonnade, study):
    table, schema = study.parent / "bank" / "bank.csv", study.parent / "schemas" / "bank.toml"
    facts = colonnade("schema", "check", table, schema, "--json")
    assert (facts["rows"], facts["id"]) == (20, "person_id")
    lines = table.read_text().splitlines(keepends=True)
    table.write_text("".join([*lines, lines[-1]]))
    assert "person_id" in colonnade("schema", "check", table, schema, code=DataError.exit_code)
    edit(table, ("person_id", "client"))
    assert "21 rows fit; without an id column" in colonnade("schema", "check", table, schema)
    assert colonnade("schema", "check", table, schema, "--json")["id"] is None
    assert "client" in colonnade("schema", "check", table, schema, "--id", "client", code=DataError.exit_code)
    assert "'nobody'" in colonnade("schema", "check", table, schema, "--id", "nobody", code=DataError.exit_code)


# --- afterwards


def record(**facts):
    return {"alignment": {"matched": None, "reused": False, "hidden": False, **facts}}


@pytest.mark.parametrize(
    ("run", "text"),
    [
        (record(matched=2630), ["2,630 people are common to bank, shop, clinic"]),
        (record(matched=1), ["1 person is common to bank, shop, clinic"]),
        (
            record(matched=283, reused=True),
            ["283 people are common to bank, shop, clinic; an earlier alignment was used again"],
        ),
        (record(reused=True), ["an earlier alignment of bank, shop, clinic was used again"]),
        (record(hidden=True), ["no party learns who is common to bank, shop, clinic, nor how many are"]),
        ({}, []),
    ],
)
def test_after_a_run_it_is_said_how_many_are_common(study, run, text):
    assert show.common(Study.load(study), run) == text


def shared(study):
    """Whom the short tables have in common, once each of them begins with ten people that all of them hold."""
    whole = {name: (EXAMPLE / name / f"{name}.csv").read_text().splitlines(keepends=True) for name in PARTIES}
    held = {name: {line.split(",")[0]: line for line in lines[1:]} for name, lines in whole.items()}
    common = sorted(set.intersection(*map(set, held.values())))[:10]
    tables = {}
    for name, lines in held.items():
        path = study.parent / name / f"{name}.csv"
        head, *rest = path.read_text().splitlines(keepends=True)
        kept = [line for line in rest if line.split(",")[0] not in common]
        path.write_text("".join([head, *(lines[person] for person in common), *kept]))
        tables[name] = {line.split(",")[0] for line in path.read_text().splitlines()[1:]}
    return len(set.intersection(*tables.values()))


def test_everyone_says_how_many_are_common_and_that_it_was_known(colonnade, study):
    folder, count = study.parent, shared(study)
    assert count >= 10
    colonnade("init", "trial", study)
    sentence = f"{count} people are common to bank, shop, clinic"
    said = colonnade("run", study, "--out", folder / "first")
    assert f"{sentence}\n" in said
    key = folder / "coordinator" / "coordinator.key"
    words = {"coordinator": ["coordinator", study, "--key", key, "--out", folder / "out"]}
    words |= {name: ["party", study, folder / name / "party.toml", "--out", folder / "out" / name] for name in PARTIES}
    words["shop"].append("--json")
    children = {name: start(*given, stderr=subprocess.PIPE) for name, given in words.items()}
    seen = finish(children)
    for name in ("bank", "clinic"):
        assert f"{sentence}; an earlier alignment was used again\n" in seen[name][0], name
    assert "\nan earlier alignment of bank, shop, clinic was used again\n" in seen["coordinator"][0]
    facts = json.loads(seen["shop"][0])["alignment"]
    assert (facts["matched"], facts["reused"]) == (count, True)


# --- when nothing matches


def start(*words, **options):
    command = [sys.executable, "-m", "colonnade", *map(str, words)]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, **options)


def finish(children):
    """What they printed; whatever happens, none is left behind."""
    try:
        return {name: child.communicate(timeout=60) for name, child in children.items()}
    finally:
        for child in children.values():
            child.kill()


def test_each_party_sees_its_own_keys_on_its_own_screen_and_nowhere_else(colonnade, study):
    """Four real processes; the bank, whose list is the shortest, has a terminal."""
    folder = study.parent
    edit(folder / "shop" / "shop.csv", ('"P', '"Q'))
    colonnade("init", "trial", study)
    example = f"person_id '{(folder / 'bank' / 'bank.csv').read_text().splitlines()[1].split(',')[0].strip(chr(34))}'"
    key, screen = folder / "coordinator" / "coordinator.key", os.openpty()
    words = {"coordinator": ["coordinator", study, "--key", key, "--out", folder / "out", "--json"]}
    words |= {name: ["party", study, folder / name / "party.toml", "--out", folder / "out" / name] for name in PARTIES}
    errors = {"bank": screen[1]}
    children = {name: start(*said, stderr=errors.get(name, subprocess.PIPE)) for name, said in words.items()}
    seen = finish(children)
    shown = read(screen)
    assert {child.returncode for child in children.values()} == {StudyError.exit_code}
    assert "nobody is common to bank, shop, clinic" in shown
    assert f"some of our own keys, as they were compared:\r\n  {example}\r\n" in shown
    assert shown.replace("\r\n", "\n").endswith(hint(study, folder / "bank" / "party.toml"))
    assert "person_id 'Q" not in shown
    everything = "".join(str(text) for texts in seen.values() for text in texts)
    everything += "".join(path.read_text() for path in (folder / "out").rglob("*.json*"))
    assert "person_id 'P" not in everything
    assert "person_id 'Q" not in everything
    told = json.loads(seen["coordinator"][0])
    assert (told["exit_code"], told["try"]) == (13, [f"colonnade keys {study} PARTY.toml"])
    assert "examples" not in told


def read(screen):
    near, far = screen
    os.close(far)
    time.sleep(0.1)
    text = b""
    try:
        while piece := os.read(near, 65536):
            text += piece
    except OSError:  # all of it is read, and nobody can write any more
        pass
    os.close(near)
    return text.decode()


def test_all_on_one_machine_get_the_sentence_and_where_to_look(colonnade, study):
    edit(study.parent / "shop" / "shop.csv", ('"P', '"Q'))
    colonnade("init", "trial", study)
    text = colonnade("run", study, "--out", study.parent / "out", code=StudyError.exit_code)
    assert "nobody is common to bank, shop, clinic (at_least = 1)" in text
    assert "nothing was spent" in text
    assert text.endswith(hint(study, *(study.parent / name / "party.toml" for name in PARTIES)))
    assert "person_id '" not in text


@pytest.mark.parametrize("told_as_json", [True, False])
def test_programs_and_logs_get_the_number_of_examples_at_most(capsys, told_as_json):
    error = AlignmentError("nobody is common")
    error.examples = ("name 'anna'", "name 'bob'")
    speak_json(told_as_json)
    about(Path("my studies/STUDY.toml"), Path("bank/party.toml"))
    try:
        assert complain(error) == StudyError.exit_code
    finally:
        speak_json(False)
    out, err = capsys.readouterr()
    assert "anna" not in out + err
    if told_as_json:
        facts = json.loads(out)
        assert facts["examples"] == 2
        assert facts["try"] == ["colonnade keys 'my studies/STUDY.toml' bank/party.toml"]
    else:
        assert err == f"colonnade: nobody is common\n{hint(repr('my studies/STUDY.toml'), 'bank/party.toml')}"
