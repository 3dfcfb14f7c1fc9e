"""What others wrote reaches terminal, log and page as plain, short text: no escape codes, no forged lines."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from colonnade.cli import output, show
from colonnade.errors import PeerStopped, StudyError
from colonnade.harmless import harmless, harmless_lines, visible
from colonnade.models import Estimator, notebook
from colonnade.report.markup import escape, tag
from colonnade.study.record import RunRecord
from colonnade.wire.watch import stopped_by
from tests.support.studies import check_words

CODES = "\x1b[2J\x1b]0;owned\x07\u202eevil\u2066\r\ncolonnade: all is well\x9b31m\u2028\x08\x00"
MODELS = Path(__file__).parents[1] / "fixtures" / "models"


def plain(text: str) -> bool:
    """Whether a terminal shows the text as it is, and on one line."""
    return all(c.isprintable() or unicodedata.category(c) == "Zs" for c in text)


@given(st.text(st.characters(exclude_categories=())), st.integers(0, 40))
def test_harmless_text_can_be_seen_and_is_short(text, longest):
    assert harmless_lines("one\ntwo\x1b[2J") == "one\ntwo\N{REPLACEMENT CHARACTER}[2J"
    found = harmless(text, longest)
    assert plain(found)
    assert len(found) <= max(longest, len(" [...]"))
    found.encode()  # also where a half of a surrogate pair was
    assert (found == text) == (plain(text) and len(text) <= longest)
    assert all(a in (b, "\N{REPLACEMENT CHARACTER}") for a, b in zip(visible(text), text, strict=True))


@pytest.mark.parametrize("as_json", [False, True])
def test_an_error_with_the_words_of_another(capfd, as_json):
    output.speak_json(as_json)
    code = output.complain(StudyError(f"the study names {CODES}" + CODES * 100_000))
    out, err = capfd.readouterr()
    said = json.loads(out)["message"] if as_json else err.removesuffix("\n")
    assert code == StudyError.exit_code
    assert plain(said)
    assert len(said) < 2100
    assert len((out + err).splitlines()) == 1, "no line that somebody else made up"


def test_a_peers_reason_is_one_plain_sentence():
    error = stopped_by("shop", CODES * 1000)
    assert isinstance(error, PeerStopped)
    assert plain(str(error))
    assert str(error).startswith("shop stopped the study: \N{REPLACEMENT CHARACTER}[2J")
    assert len(str(error)) < 1000


def test_the_record_holds_no_codes(tmp_path):
    record = RunRecord(tmp_path / "run", participant="bank", study="s", digest="00")
    record.note("heard", reason=CODES * 100_000, among={"names": [CODES], CODES: 1.5}, count=7)
    record.fail("PeerStopped", CODES * 100_000, 23)
    lines = (tmp_path / "run" / "events.jsonl").read_text("utf-8").splitlines()
    heard, failed = map(json.loads, lines)
    assert heard["count"] == 7
    assert plain("".join([heard["reason"], *heard["among"], *heard["among"]["names"], failed["message"]]))
    assert max(map(len, lines)) < 30_000
    assert plain(json.loads((tmp_path / "run" / "run.json").read_text("utf-8"))["message"])


@pytest.fixture
def foreign(tmp_path):
    """A model whose schema, written by another, has a category of escape codes."""
    text = (MODELS / "pca.json").read_text("utf-8")
    content = json.loads(text)
    named = json.dumps(CODES)[1:-1]
    content["schemas"]["shop"] = content["schemas"]["shop"].replace('"gold"', f'"{named}"')
    names = content["learned"]["feature_names_in"]
    content["learned"]["feature_names_in"] = [name.replace("gold", CODES) for name in names]
    path = tmp_path / "model.json"
    path.write_text(json.dumps(content), "utf-8")
    return Estimator.load(path)


def test_a_category_that_another_wrote(foreign, capfd):
    assert any(CODES in line for line in foreign.summary()), "the model itself keeps the name"
    output.say("\n".join([*show.summary(foreign), "x" * 3_000_000]))
    *shown, long = capfd.readouterr().out.splitlines()
    assert len(long) < 5000
    assert len(shown) == len(foreign.summary()), "it starts no line of its own"
    assert all(map(plain, shown))


def test_pages_show_no_codes(foreign):
    for markup in (escape(CODES), tag("p", CODES, title=CODES), foreign._repr_html_(), notebook.escape(CODES)):
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
