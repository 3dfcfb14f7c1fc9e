"""What the command line says about alignment: before, while it runs, and when nothing matches."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from socket import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.cli.output import complain, pace, speak_json
from colonnade.errors import AlignmentError, DataError, PolicyError, StudyError

EXAMPLE = Path(__file__).parents[2] / "examples" / "three-organisations"
HINT = "`colonnade keys STUDY.toml PARTY.toml` shows each party its own keys as they are compared"
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
    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        path.write_text(path.read_text().replace("7443", str(probe.getsockname()[1])))
    return path


def edit(path, *changes):
    text = path.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)


# --- before


def test_privacy_says_how_people_are_matched_and_who_learns_what(colonnade, study):
    text = colonnade("privacy", study, "--rows", 3000)
    found = text.partition("ALIGNMENT, mode dh")[2]
    for words in (
        "person_id, as text",
        "equal keys in two rows",
        "for lists of 3,000: about",
        "on the wire",
        "used again",
    ):
        assert words in found, words
    assert "a hundred times" not in found
    facts = colonnade("privacy", study, "--rows", 3000, "--json")["alignment"]
    assert facts["keys"] == [
        {"name": "person_id", "kind": "text", "case": "keep", "blanks": "trim", "unicode": "NFC", "accents": "keep"}
    ]
    assert (facts["mode"], facts["rows"], facts["hidden"]) == ("dh", 3000, False)
    for leak in facts["leakage"]:
        for cell in leak.values():
            assert set(cell.split()) <= set(found.split())


def test_weaker_modes_are_said_to_be_weaker(colonnade, study):
    edit(study, ('mode = "dh" ', 'mode = "helper" '))
    said = colonnade("privacy", study)
    assert "about a hundred times faster than dh, but if the coordinator and one owner pool" in said
    edit(
        study,
        ('mode = "helper" ', 'mode = "fuzzy" '),
        ('[parties.clinic]\nschema = "schemas/clinic.toml"\n', ""),
        (', "clinic"]', ', "coordinator"]'),
    )
    assert "weaker than dh: the coordinator compares Bloom filters" in colonnade("privacy", study)


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


# --- while it runs


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ((4096, 100_000, 2310.4), "4,096/100,000  2,310/s  left 0:00:42"),
        ((0, 100_000, None), "0/100,000"),
        ((30, 60, 0.25), "30/60  0.25/s  left 0:02:00"),
        ((1, 2, 0.5), "1/2  left 0:00:02"),
        ((60, 60, 20.0, 3.0), "60/60  20/s  took 0:00:03"),
        ((60, 60, 6000.0, 0.01), "60/60  took 0:00:00"),
        ((5, None, 12.0), "5/?  12/s"),
    ],
)
def test_bars_show_the_rate_and_the_time_left(given, text):
    assert pace(*given) == text


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.one_of(st.none(), st.floats(1e-3, 1e9)))
def test_a_bar_never_promises_too_little_time(done, total, speed):
    said = pace(done, total, speed)
    if speed and total >= done and "day" not in said:
        hours, minutes, seconds = map(int, said.rpartition("left ")[2].split(":"))
        assert 3600 * hours + 60 * minutes + seconds >= (total - done) / speed


# --- when nothing matches


def start(*words, **options):
    command = [sys.executable, "-m", "colonnade", *map(str, words)]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, **options)


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
    try:
        seen = {name: child.communicate(timeout=60) for name, child in children.items()}
        shown = read(screen)
    finally:
        for child in children.values():
            child.kill()
    assert children["bank"].returncode == StudyError.exit_code
    assert "nobody is common to bank, shop, clinic" in shown
    assert f"some of our own keys, as they were compared:\r\n  {example}\r\n" in shown
    assert shown.rstrip().endswith(HINT)
    assert "person_id 'Q" not in shown
    everything = "".join(str(text) for texts in seen.values() for text in texts)
    everything += "".join(path.read_text() for path in (folder / "out").rglob("*.json*"))
    assert "person_id 'P" not in everything
    assert "person_id 'Q" not in everything
    assert json.loads(seen["coordinator"][0])["exit_code"] in (13, 23)


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
    assert text.rstrip().endswith(HINT)
    assert "person_id '" not in text


@pytest.mark.parametrize("told_as_json", [True, False])
def test_programs_and_logs_get_the_number_of_examples_at_most(capsys, told_as_json):
    error = AlignmentError("nobody is common")
    error.examples = ("name 'anna'", "name 'bob'")
    speak_json(told_as_json)
    try:
        assert complain(error) == StudyError.exit_code
    finally:
        speak_json(False)
    out, err = capsys.readouterr()
    assert "anna" not in out + err
    if told_as_json:
        assert json.loads(out)["examples"] == 2
    else:
        assert err == f"colonnade: nobody is common\n{HINT}\n"
