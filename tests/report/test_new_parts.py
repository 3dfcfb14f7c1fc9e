"""What reports say since every party has one: the description, the forecast, the party's own part, and words."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from colonnade.cli.publish import _strongest, learned_of
from colonnade.models.outlook import Outlook
from colonnade.privacy import Ledger, SkellamRelease, Statement, Trust
from colonnade.privacy.releases import RandomisedResponse
from colonnade.report.glossary import WORDS, linked
from colonnade.report.markup import Html
from tests.support.reports import make_model, make_run, make_statement, rendered

OWN = {
    "party": "bank",
    "ledger": "bank/ledger.sqlite",
    "studies": 2,
    "totals": {"analyst": 0.7004, "shop+clinic": None, "others": 0.9},
    "kept": "kept.json",
    "keeps": "weights",
}


@pytest.fixture
def page():
    """The page of a record with something more in it."""
    return lambda **more: rendered(make_run() | more, make_statement(), make_model())


def test_a_record_without_the_new_facts_has_none_of_the_new_parts(page):
    text = page()
    for word in ('id="own"', 'id="enough"', 'id="words"', 'class="about"', 'class="word"', 'class="long"'):
        assert word not in text
    assert "the processor time of the same thread" in text


def test_the_description_is_shown_and_harmless(page):
    text = page(description="Who pays? <b>not bold</b>")
    assert '<p class="about">Who pays? &lt;b&gt;not bold&lt;/b&gt;</p>' in text


def test_too_few_people_are_said(page):
    few = Outlook.falling("a predicted probability", 0.1, 400.0, 1000)
    text = page(forecast=few.to_dict())
    assert "With 1,000 people noise alone is expected to move a predicted probability by about 0.4." in text
    assert "An error of 0.1 takes about 4,000 people." in text
    assert "There were too few people." in text
    assert "too few" not in page(forecast=Outlook.falling("it", 0.1, 400.0, 9000).to_dict())
    assert "How many people there were is not said here." in page(
        forecast=Outlook.falling("it", 0.1, 4, None).to_dict()
    )


def test_a_party_reads_its_own_part(page):
    text = page(own=OWN, misfits={"age": 3}, rows_held=3000, ledger_head="ab" * 32, words=True)
    for said in (
        "For bank alone",
        "3,000",
        "bank/ledger.sqlite",
        "weights, in kept.json",
        "0.701",
        "no promise",
    ):
        assert said in text
    assert "sent by this party" in text
    assert "The last row is everybody but bank together" in text


def test_processor_time_of_all_threads(page):
    run = make_run()
    people = {name: facts | {"processor_seconds": 123.0} for name, facts in run["parties"].items()}
    text = page(parties=people, coordinator=run["coordinator"] | {"processor_seconds": 100.0})
    assert "processor time of all threads" in text
    assert "2 min 3 s" in text


def test_words_are_linked_once_and_explained_where_they_occur(page):
    text = page(words=True)
    anchors = re.findall(r'<a class="word" href="#(word-[^"]+)">', text)
    assert anchors
    assert len(set(anchors)) == len(anchors)
    assert sorted(anchors) == sorted(re.findall(r'<dt id="(word-[^"]+)">', text))
    assert "word-gaussian-transfer" in anchors
    assert "word-ridge" not in anchors  # no word of this page


def test_words_in_names_code_and_pictures_are_left_alone():
    parts = [Html("<p>ridge_2 my-ridge <code>ridge</code><svg><text>ridge</text></svg></p><p>Ridges, ridge</p>")]
    (done,), explained = linked(parts)
    assert done.endswith('</p><p><a class="word" href="#word-ridge">Ridges</a>, ridge</p>')
    assert done.count("<a ") == 1
    assert WORDS["ridge"] in explained
    assert linked([Html("<p>nothing</p>")]) == ([Html("<p>nothing</p>")], None)


def test_the_pages_of_the_documentation_have_the_same_words():
    """Each word stands on one of the two pages, with the report's sentence and two lines more."""
    pages = Path(__file__).parents[2] / "docs" / "reference"
    rows = {}
    for name in ("glossary.md", "glossary-machine.md"):
        lines = re.findall(r"^\| \*\*(.+?)\*\* \| (.+) \|$", (pages / name).read_text(encoding="utf-8"), re.MULTILINE)
        words = [word for word, _ in lines]
        assert words == sorted(words)
        assert not rows.keys() & set(words)
        rows |= {word: cells.split(" | ") for word, cells in lines}
    assert {word: cells[0] for word, cells in rows.items()} == WORDS
    assert list(WORDS) == sorted(WORDS)
    for word, (sentence, lawyer, engineer) in rows.items():
        assert len({sentence, lawyer, engineer}) == 3, word
        assert min(len(lawyer), len(engineer)) > 15, word


def test_a_party_reads_its_largest_weights_and_no_others():
    models = Path(__file__).parents[1] / "fixtures" / "models"
    assert _strongest(models / "glm.kept.bank.json") == ["Own weights: arrears +3.37, income -2.18."]
    assert _strongest(models / "split.kept.bank.npz") == []


def test_what_others_learned_from_all_studies_is_never_less_than_from_one(tmp_path):
    owners = ("bank", "shop", "clinic")
    committee, apart = Trust(owners, owners, 1), Trust(owners, (), 0)
    sums = SkellamRelease("sums", tuple((name, 10**6) for name in owners), 4, 400, 40_000, 800, 160_000)
    answers = [
        RandomisedResponse(f"levels of {holder}", odds=8, categories=3, holder=holder, audience=(told,))
        for holder, told in (("shop", "bank"), ("clinic", "shop"), ("bank", "clinic"))
    ]
    book = Ledger(tmp_path / "ledger.sqlite", owner="bank")
    for trust, events in ((committee, [sums]), (apart, [event for event in answers if event.audience != ("bank",)])):
        book.commit(book.reserve("a study", "00", events, trust, ()))
    found = learned_of("bank", book.entries(), 1e-5)
    assert not [who for who in found if "bank" in who.split("+")]  # what the bank was told is not in its ledger
    for trust, events in ((committee, [sums]), (apart, answers)):
        rows = {row.observer.label: row.epsilon for row in Statement.of(events, trust, 1e-5).rows}
        for who in set(found) & set(rows):
            total = math.inf if found[who] is None else found[who]
            assert total >= rows[who] * (1 - 1e-9)
    assert found["clinic+shop"] is None
    assert 2.0 < found["others"] < math.inf
