"""What commands say: of alignment before and afterwards, and what others wrote as plain, short text.

No escape codes and no forged lines reach a terminal, a log or a page.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from colonnade.cli import output, text_output
from colonnade.drawing.canvas import escape, tag
from colonnade.errors import AlignmentError, DataError, IdentityError, PeerStopped, PolicyError, StudyError
from colonnade.models import Estimator
from colonnade.sanitize import replace_invisible, sanitize, sanitize_lines
from colonnade.study import PartyConfig, Study
from colonnade.study.record import RunRecord
from colonnade.wire.peer_liveness import stopped_error
from tests.support.studies import check_words, edit

PARTIES = ("bank", "shop", "clinic")
OT, ON = 'mode = "ot" ', 'on = "person_id" '


@pytest.fixture
def study(study):
    """The example with short tables, of which the bank's is the shortest, that begin with ten people whom all hold."""
    tables = {name: study.parent / name / f"{name}.csv" for name in PARTIES}
    whole = {name: table.read_text().splitlines(keepends=True) for name, table in tables.items()}
    held = {name: {line.split(",")[0]: line for line in lines[1:]} for name, lines in whole.items()}
    common = sorted(set.intersection(*map(set, held.values())))[:10]
    for name, rows in zip(PARTIES, (20, 30, 40), strict=True):
        others = [line for person, line in held[name].items() if person not in common]
        chosen = [held[name][person] for person in common] + others[: rows - 10]
        tables[name].write_text("".join([whole[name][0], *chosen]))
    return study


def people(study, name):
    lines = (study.parent / name / f"{name}.csv").read_text().splitlines()[1:]
    return [line.split(",")[0].strip('"') for line in lines]


def hint(study, *configs):
    commands = [f"  colonnade keys {study} {config}\n" for config in configs]
    return "".join(["to see a party's own keys, as they are compared:\n", *commands])


# --- before


def test_privacy_says_how_people_are_matched_and_who_learns_what(colonnade, study):
    found = colonnade("privacy", study, "--rows", 3000).partition("ALIGNMENT, mode ot")[2]
    told = (
        "person_id, as text",
        "no row stays whose key occurs twice",
        "for lists of 3,000: about",
        "on the wire",
        "used again",
    )
    check_words(found, *told)
    facts = colonnade("privacy", study, "--rows", 3000, "--json")["alignment"]
    rules = {"kind": "text", "case": "keep", "blanks": "trim", "unicode": "NFC", "accents": "keep"}
    assert facts["keys"] == [{"name": "person_id", **rules}]
    assert (facts["mode"], facts["rows"], facts["hidden"]) == ("ot", 3000, False)
    assert {word for leak in facts["leakage"] for cell in leak.values() for word in cell.split()} <= set(found.split())


def test_either_exact_mode_says_what_the_other_would_take_and_promise(colonnade, study):
    pooled = "the coordinator and any one owner who pool what they see can try out every key on every list"
    before, took = OT, {}
    for mode, words in (("dh", f"faster), but there {pooled}"), ("helper", f"here {pooled}; in mode dh they cannot")):
        edit(study, (before, f'mode = "{mode}" '))
        before = f'mode = "{mode}" '
        took[mode] = colonnade("privacy", study, "--json")["alignment"]["seconds"]
        check_words(colonnade("privacy", study), f"for lists of 100,000: about {took[mode]:,.1f} s", words)
    assert took["dh"] > 2 * took["helper"]


OTHER_RULES = [
    (ON, 'hidden = true\nduplicates = "drop"\nreuse = false\non = ["who", "birth"] '),
    (
        "[committee]",
        '[align.keys.who]\ncase = "fold"\naccents = "strip"\n\n[align.keys.birth]\nkind = "date"\n\n[committee]',
    ),
]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ([(OT, f"pad_to = 5_000\n{OT}")], ["for lists padded to 5,000: about"]),
        (
            [
                (OT, 'similarity = 0.9\nmode = "fuzzy" '),
                ('[parties.clinic]\nschema = "schemas/clinic.toml"\n', ""),
                (', "clinic"]', ', "coordinator"]'),
            ],
            [
                "mode fuzzy: first the parties pair the people whose keys are similar, 0.9 of 1 or more",
                "weaker than the exact modes: the coordinator compares Bloom filters",
                "for lists of 50,000: about",
            ],
        ),
        (
            OTHER_RULES,
            [
                "and nobody learns who they are",
                "who, as text: capitals as small letters, without blanks at the ends, without accents, Unicode NFC",
                "birth, as a date, yyyy-mm-dd",
                "no row stays",
                "nobody is told whether anybody matched",
            ],
        ),
    ],
    ids=["padded", "fuzzy", "hidden"],
)
def test_other_alignments_are_said_to_be_such(colonnade, study, changes, words):
    edit(study, *changes)
    found = colonnade("privacy", study).partition("ALIGNMENT")[2]
    check_words(found, *words)
    assert ("used again" in found) == (changes is not OTHER_RULES)


def test_a_party_sees_what_alignment_tells_before_it_is_asked(colonnade, study, tmp_path):
    edit(study, (OT, 'mode = "helper" '))
    words = ["party", study, study.parent / "bank" / "party.toml", "--out", tmp_path / "out"]
    said = colonnade(*words, code=IdentityError.exit_code)  # nobody has made keys, which is the first thing looked for
    shown, _, refused = said.partition("colonnade: ")
    told = ("bank in 'three-organisations': this is what it costs", "ALIGNMENT, mode helper")
    check_words(shown, *told, "who pool what they see can try out every key")
    assert "certificate" in refused


def test_without_alignment_nothing_is_said_of_it(colonnade, study):
    text = study.read_text()
    study.write_text(text[: text.index("[align]")] + text[text.index("[committee]") :])
    assert "ALIGNMENT" not in colonnade("privacy", study)
    assert colonnade("privacy", study, "--json")["alignment"] is None
    said = colonnade("keys", study, study.parent / "bank" / "party.toml", code=StudyError.exit_code)
    assert "has no [align]" in said


def test_a_party_is_shown_its_own_keys(colonnade, study):
    config, table = study.parent / "bank" / "party.toml", study.parent / "bank" / "bank.csv"
    words, (first, second, *_) = ("keys", study, config), people(study, "bank")
    edit(table, (first, ""), (second, f"  {second} "))
    table.write_text(table.read_text() + table.read_text().splitlines(keepends=True)[3])
    facts = colonnade(*words, "--json")
    assert facts["examples"][0] == f"person_id '{second}'"
    assert [facts[name] for name in ("rows", "keys", "missing", "repeated")] == [21, 18, 1, 2]
    edit(study, (ON, f'duplicates = "refuse"\n{ON}'))
    assert "occurs more than once" in colonnade(*words, code=DataError.exit_code)
    edit(config, ('name = "bank"', 'name = "baker"'))
    assert "is not a party" in colonnade(*words, code=PolicyError.exit_code)


def test_the_doctor_reads_a_table_once_and_says_what_is_wrong_once(colonnade, study, monkeypatch):
    reads, table = [], PartyConfig.table
    monkeypatch.setattr(PartyConfig, "table", lambda *given: reads.append(given) or table(*given))
    found = []
    for change in (("", ""), (OT, f"pad_to = 19\n{OT}"), (ON, 'on = ["name", "birth"] ')):
        edit(study, change)
        told = colonnade("doctor", study, study.parent / "bank" / "party.toml", "--json", code=1)  # there are no keys
        found.append({check["what"]: check for check in told["checks"] if check["what"] in ("table", "keys")})
    levels = [{what: check["level"] for what, check in each.items()} for each in found]
    assert levels == [{"table": "good", "keys": "good"}, {"table": "good", "keys": "bad"}, {"table": "bad"}]
    assert "20 keys, person_id in column 'person_id' (ot); rows left out: none" in found[0]["keys"]["detail"]
    assert len(reads) == 3


# --- afterwards


ALL = "bank, shop, clinic"


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({"matched": 2630}, [f"2,630 people are common to {ALL}"]),
        ({"matched": 283, "reused": True}, [f"283 people are common to {ALL}; an earlier alignment was used again"]),
        ({"reused": True}, [f"an earlier alignment of {ALL} was used again"]),
        ({"hidden": True}, [f"no party learns who is common to {ALL}, nor how many are"]),
        (None, []),
    ],
)
def test_after_a_run_it_is_said_how_many_are_common(study, facts, text):
    run = {} if facts is None else {"alignment": {"matched": None, "reused": False, "hidden": False, **facts}}
    assert text_output.common(Study.load(study), run) == text


# --- when nothing matches


@pytest.mark.system
def test_each_party_sees_its_own_keys_on_its_own_screen_and_nowhere_else(colonnade, study):
    """Four real processes; the bank, whose list is the shortest, has a terminal."""
    folder, (near, far) = study.parent, os.openpty()
    edit(folder / "shop" / "shop.csv", ('"P', '"Q'))
    colonnade("init", "trial", study)
    key, out = folder / "coordinator" / "coordinator.key", folder / "out"
    words = {name: ["party", study, folder / name / "party.toml", "--out", out / name] for name in PARTIES}
    words["coordinator"] = ["coordinator", study, "--key", key, "--out", out, "--json"]
    children = {}
    for name, typed in words.items():
        command = [sys.executable, "-m", "colonnade", *map(str, typed)]
        where = {"stdout": subprocess.PIPE, "stderr": far if name == "bank" else subprocess.PIPE}
        children[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, text=True, **where)
    try:
        seen = {name: child.communicate(timeout=300) for name, child in children.items()}
    finally:
        for child in children.values():
            child.kill()
    os.close(far)
    shown = b""
    try:
        while piece := os.read(near, 65536):
            shown += piece
    except OSError:  # all of it is read, and nobody can write any more
        os.close(near)
    text = shown.decode().replace("\r\n", "\n")
    example = f"person_id '{people(study, 'bank')[0]}'"
    assert {child.returncode for child in children.values()} == {StudyError.exit_code}
    check_words(text, f"nobody is common to {ALL}", f"some of our own keys, as they were compared:\n  {example}\n")
    assert text.endswith(hint(study, folder / "bank" / "party.toml"))
    assert "person_id 'Q" not in text
    everything = "".join(str(said) for texts in seen.values() for said in texts)
    everything += "".join(path.read_text() for path in (folder / "out").rglob("*.json*"))
    assert not any(secret in everything for secret in ("person_id 'P", "person_id 'Q"))
    told = json.loads(seen["coordinator"][0])
    assert (told["exit_code"], told["try"]) == (13, [f"colonnade keys {study} PARTY.toml"])
    assert "examples" not in told


@pytest.mark.parametrize("told_as_json", [True, False])
def test_programs_and_logs_get_the_number_of_examples_at_most(capsys, told_as_json):
    error = AlignmentError("nobody is common")
    error.examples = ("name 'anna'", "name 'bob'")
    output.speak_json(told_as_json)
    output.remember_files(Path("my studies/STUDY.toml"), Path("bank/party.toml"))
    assert output.report_error(error) == StudyError.exit_code
    out, err = capsys.readouterr()
    assert "anna" not in out + err
    if told_as_json:
        facts = json.loads(out)
        asked = ["colonnade keys 'my studies/STUDY.toml' bank/party.toml"]
        assert (facts["examples"], facts["try"]) == (2, asked)
    else:
        assert err == f"colonnade: nobody is common\n{hint(repr('my studies/STUDY.toml'), 'bank/party.toml')}"


# --- what others wrote


CODES = "\x1b[2J\x1b]0;owned\x07\u202eevil\u2066\r\ncolonnade: all is well\x9b31m\u2028\x08\x00"


def plain(text: str) -> bool:
    """Whether a terminal shows the text as it is, and on one line."""
    return all(c.isprintable() or unicodedata.category(c) == "Zs" for c in text)


@given(st.text(st.characters(exclude_categories=())), st.integers(0, 40))
def test_harmless_text_can_be_seen_and_is_short(text, longest):
    assert sanitize_lines("one\ntwo\x1b[2J") == "one\ntwo\N{REPLACEMENT CHARACTER}[2J"
    found = sanitize(text, longest)
    assert plain(found)
    assert len(found) <= max(longest, len(" [...]"))
    found.encode()  # also where a half of a surrogate pair was
    assert (found == text) == (plain(text) and len(text) <= longest)
    assert all(a in (b, "\N{REPLACEMENT CHARACTER}") for a, b in zip(replace_invisible(text), text, strict=True))


@pytest.mark.parametrize("as_json", [False, True])
def test_an_error_with_the_words_of_another(capfd, as_json):
    output.speak_json(as_json)
    code = output.report_error(StudyError(f"the study names {CODES}" + CODES * 100_000))
    out, err = capfd.readouterr()
    said = json.loads(out)["message"] if as_json else err.removesuffix("\n")
    assert code == StudyError.exit_code
    assert plain(said)
    assert len(said) < 2100
    assert len((out + err).splitlines()) == 1, "no line that somebody else made up"


def test_a_peers_reason_is_one_plain_sentence_and_the_record_holds_no_codes(tmp_path):
    error = stopped_error("shop", CODES * 1000)
    assert isinstance(error, PeerStopped)
    assert plain(str(error))
    assert str(error).startswith("shop stopped the study: \N{REPLACEMENT CHARACTER}[2J")
    assert len(str(error)) < 1000
    record = RunRecord(tmp_path / "run", participant="bank", study="s", digest="00")
    record.record_public("heard", reason=CODES * 100_000, among={"names": [CODES], CODES: 1.5}, count=7)
    record.fail("PeerStopped", CODES * 100_000, 23)
    lines = (tmp_path / "run" / "events.jsonl").read_text("utf-8").splitlines()
    heard, failed = map(json.loads, lines)
    assert heard["count"] == 7
    assert plain("".join([heard["reason"], *heard["among"], *heard["among"]["names"], failed["message"]]))
    assert max(map(len, lines)) < 30_000
    assert plain(json.loads((tmp_path / "run" / "run.json").read_text("utf-8"))["message"])


def test_a_model_whose_schema_has_a_category_of_escape_codes(tmp_path, capfd):
    content = json.loads((Path(__file__).parents[1] / "fixtures" / "models" / "pca.json").read_text("utf-8"))
    content["schemas"]["shop"] = content["schemas"]["shop"].replace('"gold"', json.dumps(CODES))
    names = content["learned"]["feature_names_in"]
    content["learned"]["feature_names_in"] = [name.replace("gold", CODES) for name in names]
    path = tmp_path / "model.json"
    path.write_text(json.dumps(content), "utf-8")
    foreign = Estimator.load(path)
    assert any(CODES in line for line in foreign.summary()), "the model itself keeps the name"
    output.say("\n".join([*text_output.summary(foreign), "x" * 3_000_000]))
    *shown, long = capfd.readouterr().out.splitlines()
    assert len(long) < 5000
    assert len(shown) == len(foreign.summary()), "it starts no line of its own"
    assert all(map(plain, shown))
    for markup in (escape(CODES), tag("p", CODES, title=CODES), foreign._repr_html_()):
        assert not set(markup) & set("\x1b\x07\u202e\u2066\x9b\x08\x00\u2028")
    assert len(escape("x" * 3_000_000)) < 5000


def test_a_schema_that_is_wrong_and_long(colonnade, tmp_path):
    value = json.dumps(CODES * 2_000)
    (tmp_path / "s.toml").write_text(f'[columns.c]\ntype = "category"\nvalues = [{value}, {value}]\n', "utf-8")
    (tmp_path / "t.csv").write_text("person_id,c\n1,a\n", "utf-8")
    said = colonnade("schema", "check", tmp_path / "t.csv", tmp_path / "s.toml", code=10)
    check_words(said, "values lists", "...")
    assert len(said) < 2100
    assert plain(said.removesuffix("\n"))
