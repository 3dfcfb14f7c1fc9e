"""The page of a report: what it says of a run, a statement, a model and an evaluation, and how it is drawn."""

from __future__ import annotations

import copy
import json
import math
import re
from dataclasses import replace
from functools import cache, reduce
from itertools import pairwise
from operator import getitem
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from colonnade.cli.results import _strongest, learned_of
from colonnade.drawing.canvas import Html, extent
from colonnade.errors import StudyError
from colonnade.kinds import PCA, JointPrediction, LogisticRegression, PolynomialSum
from colonnade.kinds.pca.report import SECTION, noise_edge
from colonnade.models import Estimator, Roster
from colonnade.models.planner import SampleSizeForecast
from colonnade.models.registry import rows, section_of
from colonnade.privacy import Ledger, SkellamRelease
from colonnade.privacy.events import NonPrivate
from colonnade.privacy.noise_laws import RandomisedResponse
from colonnade.privacy.observers import Trust
from colonnade.privacy.statement import Statement, format_rounded_up
from colonnade.protocols.align import AlignmentTask
from colonnade.report import wording, write_report
from colonnade.report.sections import ReportSection
from colonnade.report.wording import WORDS, link_terms
from colonnade.tables import Schema, category, flag, number
from colonnade.tables.cell_parsing import CellLocation
from colonnade.tables.keys import Key
from tests.support.errors import refused
from tests.support.pages import Page
from tests.support.reports import COLUMNS, as_fitted, make_evaluation, make_model, make_run, make_statement, rendered

HOSTILE = "<script>alert(1)</script>\"'&amp;<img src=http://evil.example/x>"
DOCS = Path(__file__).parents[2] / "docs"
EVALUATION = make_evaluation()
UNFITTED = PCA(3, epsilon=1.0)
fitted = cache(make_model)


@cache
def whole():
    return rendered(make_run(), make_statement(), fitted(), EVALUATION)


def page_of(run=None, statement=None, model=None, **more):
    """The page of a record with something more in it."""
    return Page(rendered((make_run() if run is None else run) | more, statement or make_statement(), model or fitted()))


def sections(page):
    return [section["id"] for section in page.all("section")]


def check_says(page, *said, never=()):
    """Everything that is said stands in the words of a page, and nothing else of these does."""
    for text in said:
        assert text in page.words, text
    for text in never:
        assert text not in page.words, text


def test_structure_and_order_speak_to_a_screen_reader_and_nothing_is_fetched():
    page = Page(whole())
    assert page.all("html")[0]["lang"] == "en"
    assert (page.headings[0], page.headings.count(1)) == (1, 1)
    assert all(later <= earlier + 1 for earlier, later in pairwise(page.headings))
    assert sections(page) == ["privacy", "people", "seen", "result", "evaluation", "cost", "check"]
    assert {head["scope"] for head in page.all("th")} == {"col", "row"}
    named = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(named) == len(set(named))
    assert {link["href"] for link in page.all("a")} <= {f"#{name}" for name in named}
    drawn = [svg for svg in page.all("svg") if svg.get("class") == "chart"]
    assert len(drawn) == 2 * 5
    ids = {attrs.get("id"): tag for tag, attrs in page.tags}
    for svg in drawn:
        assert (svg["role"], [ids[name] for name in svg["aria-labelledby"].split()]) == ("img", ["title", "desc"])
    assert not re.search(r"https?:|@import|//[a-z]|<script", whole())
    assert not {"script", "link", "img", "iframe", "object", "base", "form"} & {name for name, _ in page.tags}
    assert not {"src", "style"} & {name for _, attrs in page.tags for name in attrs}
    assert all(address.startswith("#") for address in re.findall(r"url\(([^)]*)\)", whole()))


def test_it_says_in_plain_words_who_is_promised_what():
    page, statement = Page(whole()), make_statement()
    check_says(
        page, "bank, shop and clinic computed one PCA of 24 columns; nobody, the coordinator included", "10⁻⁵", "24",
        "5.2 s", "13.5 MB", "no promise", *statement.assumptions, "counts as the coordinator", "not as the analyst",
    )  # fmt: skip
    names = page.words.replace("+ ", "+")
    for row in (*statement.rows, *statement.missing_noise):
        assert row.observer.label in names
        figure = format_rounded_up(row.epsilon, 3) if math.isfinite(row.epsilon) else row.reason
        check_says(page, row.adjacency.value, row.condition, figure)


def test_after_several_attempts_it_says_what_all_of_them_cost():
    statement = make_statement()
    together = statement.of_attempts(3)
    page = page_of(attempts=json.loads(json.dumps(together)))
    figures = [row["epsilon"] for row in together["rows"] if row["epsilon"] is not None]
    assert figures[0] > 1.2 * statement.rows[0].epsilon
    check_says(page, "This was attempt 3", *(format_rounded_up(figure, 3) for figure in figures))
    for odd in ({}, {"rows": ["x"]}, {"rows": [{"observer": 3, "epsilon": "x"}]}, "three"):
        check_says(page_of(attempts=odd), never=["This was attempt"])


def test_charts_hold_the_numbers():
    assert extent("ill!") < extent("same") < extent("MOWN"), "letters have the room that they need"
    page, model = Page(whole()), fitted()
    strongest = f"{np.abs(model.components_).max():.2f}"
    ratios = (f"{100 * ratio:.1f} %" for ratio in model.explained_variance_ratio_)
    check_says(page, *ratios, strongest, "multiply", "deal", "own block", "4.6 MB")
    for line in EVALUATION["lines"]:
        pairs = zip(line["mean"], line["std"], strict=True)
        check_says(page, line["name"], *(f"{100 * mean:.1f} ± {100 * std:.1f} %" for mean, std in pairs))


def test_many_columns_are_cut_to_the_strongest_and_grouped_by_the_longest_fitting_party():
    check_says(Page(whole()), "The 15 strongest of 24 columns")
    model = make_model({"bank": ["a"], "bank.north": ["b"], "shop": ["c.d"]}, n_components=1)
    page = page_of(statement=make_statement(("bank", "bank.north", "shop")), model=model)
    check_says(page, "bank.north, b:", "shop, c.d:", never=["strongest of"])


def test_names_of_others_stay_text(tmp_path):
    owners = (HOSTILE, "shop", "clinic\u202e\x00")
    columns = {owner: [f"{HOSTILE}{k}" for k in range(3)] for owner in owners}
    names = ("study", "digest", "started", "ended", "platform", "description")
    hostile = make_run(columns) | dict.fromkeys(names, HOSTILE)
    hostile["task"] |= dict.fromkeys(("noise", "law", "gamma", "primes"), HOSTILE)
    hostile["parties"][HOSTILE]["phases"][HOSTILE] = {"wall": 3.0, "cpu": 1.0}
    evaluation = make_evaluation() | {"title": HOSTILE, "note": HOSTILE}
    evaluation["lines"][0]["name"] = HOSTILE
    text = rendered(hostile, make_statement(owners), make_model(columns), evaluation)
    page = Page(text)
    assert not page.all("script") + page.all("img")
    assert HOSTILE in page.words
    assert not {"\u202e", "\x00"} & set(text)
    lone = write_report(tmp_path, make_run() | {"study": "a \ud800 name"}, make_statement(), fitted(), SECTION)
    assert "a \N{REPLACEMENT CHARACTER} name" in lone.read_text("utf-8")


def _paths(value, before=()):
    for key, inner in value.items():
        yield (*before, key)
        if isinstance(inner, dict):
            yield from _paths(inner, (*before, key))


MISSING = "missing"


@pytest.mark.parametrize("odd", [MISSING, None, [], "text", 10**400, math.nan], ids=lambda odd: str(odd)[:8])
def test_any_part_of_the_record_may_be_missing_or_odd(odd):
    """Of a few phases and observers: a page is written for every part of a record."""
    whole, few = make_run({"bank": ["income"]}), make_statement(("bank", "shop"))
    phases = whole["parties"]["bank"]["phases"]
    whole["parties"]["bank"]["phases"] = {name: phases[name] for name in ("noise", "multiply")}
    read = Page if isinstance(odd, str) else str  # to read a page back takes longer than to write it
    for *way, last in _paths(whole):
        damaged = copy.deepcopy(whole)
        inner = reduce(getitem, way, damaged)
        inner[last] = odd
        if odd is MISSING:
            del inner[last]
        read(rendered(damaged, replace(few, rows=few.rows[:3]), UNFITTED))


def test_rounds_and_bytes_are_told_by_phase_and_records_of_earlier_releases_have_none():
    said = ["Rounds by phase A round is a wait for a message", "deal 0 96 ", "receive 2 0 0 B"]
    check_says(page_of(), *said, never=["own block 0 0"])  # nothing was said in it
    run = make_run()
    for party in run["parties"].values():
        party["traffic"].pop("rounds")
        party["phases"] = {name: {"wall": 1.0, "cpu": 0.5} for name in party["phases"]}
    check_says(page_of(run), "Seconds by phase", never=["Rounds by phase"])


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"lines": []},
        {"epsilons": [], "lines": [{"name": "a", "mean": []}]},
        {"epsilons": [1], "lines": [{"name": "a", "mean": [0.5]}]},
        {"epsilons": [1, 2], "lines": [{"mean": [0.5, None]}], "ceiling": None},
        {"epsilons": [0, -1, 2, 3], "lines": [{"name": "a", "mean": [0.5, 0.6, 0.7, math.nan], "std": [None]}]},
        {"epsilons": [1, 2], "lines": [{"name": "a", "mean": [0, 0]}], "ceiling": 0},
        {"epsilons": [2, 1], "lines": [{"name": str(k), "mean": [0.9, 0.9]} for k in range(12)], "ceiling": 0.9},
    ],
)
def test_odd_evaluations(odd):
    Page(rendered(make_run(), make_statement(), fitted(), odd))


def test_noise_over_everything_is_admitted_and_its_edge_is_where_the_spectrum_ends():
    check_says(page_of(model=make_model(noise_std=1e9)), "None stands above what the noise alone would show")
    rng, columns, std, count = np.random.default_rng(5), 200, 3.0, 10.0
    above = np.triu(rng.normal(scale=std / math.sqrt(2), size=(columns, columns)), 1)
    noise = above + above.T + np.diag(rng.normal(scale=std, size=columns))
    assert np.linalg.eigvalsh(noise / count)[-1] == pytest.approx(noise_edge(std, columns, count), rel=0.08)


def test_two_owners_seat_the_coordinator_and_many_make_a_short_page():
    model = make_model({"bank": ["a"], "shop": ["b"]}, n_components=1)
    page = page_of(statement=make_statement(("bank", "shop")), model=model)
    check_says(page, "holds the third share", "2 are needed to see anything")
    many = rendered(make_run(), make_statement(tuple(f"owner{k:04d}" for k in range(200)), threshold=3), fitted())
    assert "195 more" in Page(many).words
    assert len(many) < 200_000


def test_what_is_not_promised_or_not_computed_is_said_out_loud():
    statement = Statement.of([NonPrivate("the raw sums were shown")], make_statement().trust, 1e-5)
    check_says(page_of(statement=statement), "is promised nothing", "the raw sums were shown")
    failed, unfitted = page_of(model=UNFITTED, status="failed", message="shop was lost"), page_of(model=UNFITTED)
    check_says(failed, "This run failed: shop was lost", never=["computed one PCA"])
    check_says(unfitted, "one PCA of 24 columns")
    assert "result" not in sections(unfitted)
    assert sections(page_of({}, model=UNFITTED)) == ["privacy", "seen", "check"], "nothing but a statement is needed"


def test_output_repeats_also_of_a_model_that_was_saved(tmp_path):
    target = write_report(tmp_path, make_run(), make_statement(), fitted(), SECTION, EVALUATION)
    assert list(tmp_path.iterdir()) == [target]
    model = make_model()
    model.schemas_ = {owner: Schema({name: number(0, 1) for name in held}) for owner, held in COLUMNS.items()}
    saved = Estimator.load(model.save(tmp_path / "model.json"))
    assert rendered(make_run(), make_statement(), saved, make_evaluation()) == target.read_text("utf-8") == whole()


def test_every_kind_of_model_has_a_section_and_other_kinds_are_refused():
    assert all(isinstance(section_of(row.kind), ReportSection) for row in rows() if row.kind != "sketch")
    refused(StudyError, "ST139", "forest", "pca", section_of, "forest")


# --- other kinds of results


def _regression(classes=1, **more):
    """A fitted logistic regression."""
    names = [f"{owner}.{column}" for owner, held in COLUMNS.items() for column in held]
    answers = category(["never", "late", "gone"][:classes]) if classes > 1 else flag()
    learned = {
        "feature_names_in": names,
        "coef": np.random.default_rng(3).normal(size=(classes, len(names))),
        "intercept": np.linspace(-1.25, 1, classes),
        "method": "one-shot",
        "noise_std": 60.0,
        "count": 4987.3,
        "ridge": 123.4,
        "clipped": 0,
        "protection": {"bank": 1.23456, "shop": 0.7, "clinic": None},
    }
    schemas = {"bank": Schema({"income": number(0, 1), "default": answers})}
    return as_fitted(LogisticRegression(label="bank.default", epsilon=1.0), learned | more, schemas)


def test_a_regression_shows_coefficients_by_party_and_what_they_tell():
    model = _regression()
    page = page_of(model=model)
    assert sections(page) == ["privacy", "people", "seen", "result", "cost", "check"]
    check_says(
        page, "one logistic regression on 24 columns", "of bank.default", "one-shot", "\N{MINUS SIGN}1.250", "123.4",
        "skellam, deviation 60", "The 20 strongest of 24 columns", f"{abs(model.coef_[0]).max():.2f}", "1.235", "0.700",
        "no promise", never=["accuracy"],
    )  # fmt: skip
    check_says(page_of(model=_regression(3)), "never", "late", "gone", "+1.000")
    batches = make_run()["task"] | {"rounds": 400, "batch": 25, "sampling": "poisson"}
    check_says(page_of(model=model, task=batches), "poisson, 25 people")
    odd = page_of(model=_regression(ridge=None, count=None))
    check_says(odd, "A logistic regression of bank.default on 24 columns", never=["Ridge"])
    for first, bars in (((0.0, 0.0), 0), ((2.0, -1.0), 2)):  # signed ones on both sides of zero, for a page and a phone
        model.coef_ = np.array([[*first, *[0.0] * 22]])
        looks = [rect.get("class") for rect in page_of(model=model).all("rect")]
        assert looks.count("neg") == bars


def test_sums_are_shown_with_their_noise_and_a_report_on_predictions_holds_none():
    texts = ["bank.a * shop.b", HOSTILE]
    learned = {"values": [-1234.5, 2.0], "deviations": [10.25, 0.5], "feature_names_in": ["bank.a", "shop.b"]}
    model = as_fitted(PolynomialSum(texts, epsilon=1.0), learned | {"expressions": texts, "gamma": 4096})
    check_says(page_of(model=model), "2 sums over the columns", *texts, "\N{MINUS SIGN}1,234", "10.25")
    told = {"ids": ["P1", "P2"], "scores": [[7.75], [1.0]], "predictions": [7.75, 1.0]}
    page = page_of(model=as_fitted(JointPrediction(to="bank", exact=True), told))
    said = ["predictions for bank", "bank was told the exact scores of 2 people"]
    check_says(page, *said, never=["P1", "7.75"])
    assert "Published result" not in page.text


# --- whom it is about


def test_the_alignment_is_told_in_counts_with_who_learned_what():
    leaks = AlignmentTask(make_statement().trust, (Key("x"),)).leakage
    check_says(
        page_of(), "by name and birth: 4,990 people", "9,057", "9,101", "41", "1.8 s", "no helper is trusted",
        "tables below say", "Besides what the alignment told",
        *(words for leak in leaks for words in (leak.who, leak.learns, leak.beyond)),
    )  # fmt: skip
    again = make_run()["alignment"] | {"reused": True, "matched": None}
    check_says(page_of(alignment=again), "by name and birth: 4,990 people")  # as a party knows


def test_a_hidden_alignment_and_one_that_is_used_again():
    run = make_run()
    run["alignment"] |= {"hidden": True, "reused": True, "matched": None}
    for facts in run["parties"].values():
        facts["alignment"]["matched"] = None
    said = ["No party knows which", "used again", "at most lengths of lists", "told only that no list had changed"]
    (owner, *_) = AlignmentTask(make_statement().trust, (Key("x"),), hidden=True).leakage
    check_says(page_of(run), owner.learns, *said, never=["That took", "people in common"])


def test_runs_without_an_alignment_look_as_before_and_a_mode_that_does_not_fit_has_no_table():
    run = make_run()
    for mode in ("fuzzy", None):
        run["alignment"]["mode"] = mode
        check_says(page_of(run), "4,990 people", never=["Who learned what from this"])
    for facts in (run, *run["parties"].values()):
        del facts["alignment"]
    check_says(page_of(run), "There was nothing else.", never=["alignment"])
    assert "people" not in sections(page_of(run))


# --- what reports say since every party has one: the description, the forecast, the party's own part, and words


def test_too_few_people_are_said():
    few, enough, unknown = (
        page_of(forecast=SampleSizeForecast.falling("a predicted probability", 0.1, 400.0, people).to_dict())
        for people in (1000, 9000, None)
    )
    check_says(
        few, "With 1,000 people noise alone is expected to move a predicted probability by about 0.4.",
        "An error of 0.1 takes about 4,000 people.", "There were too few people.",
    )  # fmt: skip
    check_says(enough, never=["too few"])
    check_says(unknown, "How many people there were is not said here.")


def test_a_party_reads_its_own_part():
    own = {
        "party": "bank",
        "ledger": "bank/ledger.sqlite",
        "studies": 2,
        "totals": {"analyst": 0.7004, "shop+clinic": None, "others": 0.9},
        "kept": "kept.json",
        "keeps": "weights",
    }
    run = make_run()
    people = {name: facts | {"processor_seconds": 123.0} for name, facts in run["parties"].items()}
    page = page_of(
        own=own, misfits={"age": 3}, rows_held=3000, ledger_head="ab" * 32, parties=people,
        coordinator=run["coordinator"] | {"processor_seconds": 100.0},
    )  # fmt: skip
    check_says(
        page, "For bank alone", "3,000", "bank/ledger.sqlite", "weights, in kept.json", "0.701", "no promise",
        "sent by this party", "The last row is everybody but bank together", "processor time of all threads",
        "2 min 3 s",
    )  # fmt: skip


def test_words_are_linked_once_and_explained_where_they_occur():
    text = rendered(make_run() | {"words": True}, make_statement(), fitted())
    anchors = re.findall(r'<a class="word" href="#(word-[^"]+)">', text)
    assert len(set(anchors)) == len(anchors)
    assert sorted(anchors) == sorted(re.findall(r'<dt id="(word-[^"]+)">', text))
    assert {"word-gaussian-transfer", "word-ridge"} & set(anchors) == {"word-gaussian-transfer"}  # no ridge here
    assert 'class="word"' not in whole()


def test_words_in_names_code_and_pictures_are_left_alone():
    parts = [Html("<p>ridge_2 my-ridge <code>ridge</code><svg><text>ridge</text></svg></p><p>Ridges, ridge</p>")]
    (done,), explained = link_terms(parts)
    assert done.partition("</p>")[2] == '<p><a class="word" href="#word-ridge">Ridges</a>, ridge</p>'
    assert (done.count("<a "), WORDS["ridge"] in explained) == (1, True)
    assert link_terms([Html("<p>nothing</p>")]) == ([Html("<p>nothing</p>")], None)


def test_the_pages_of_the_documentation_have_the_same_words():
    """Each word stands on one of the two pages, with the report's sentence and two lines more."""
    found = []
    for name in ("glossary.md", "glossary-machine.md"):
        text = (DOCS / "reference" / name).read_text(encoding="utf-8")
        lines = re.findall(r"^\| \*\*(.+?)\*\* \| (.+) \|$", text, re.MULTILINE)
        assert lines == sorted(lines)
        found += [(word, cells.split(" | ")) for word, cells in lines]
    assert sorted((word, cells[0]) for word, cells in found) == list(WORDS.items())
    for word, (sentence, lawyer, engineer) in found:
        assert len({sentence, lawyer, engineer}) == 3, word
        assert min(len(lawyer), len(engineer)) > 15, word


def test_a_party_reads_its_largest_weights_and_no_others():
    models, told = Path(__file__).parents[1] / "fixtures" / "models", ["Own weights: arrears +3.37, income -2.18."]
    assert [_strongest(models / name) for name in ("glm.kept.bank.json", "split.kept.bank.npz")] == [told, []]


def test_what_others_learned_from_all_studies_is_never_less_than_from_one(tmp_path):
    owners = ("bank", "shop", "clinic")
    sums = SkellamRelease("sums", tuple((name, 10**6) for name in owners), 4, 400, 40_000, 800, 160_000)
    answers = [
        RandomisedResponse(f"levels of {holder}", odds=8, categories=3, holder=holder, audience=(told,))
        for holder, told in (("clinic", "shop"), ("bank", "clinic"), ("shop", "bank"))
    ]
    book = Ledger(tmp_path / "ledger.sqlite", owner="bank")
    studies = ((Trust(owners, owners, 1), [sums]), (Trust(owners, (), 0), answers))
    for trust, events in studies:
        book.commit(book.reserve("a study", "00", events[:2], trust, ()))  # what the bank was told is not in its ledger
    found = learned_of("bank", book.entries(), 1e-5)
    assert not [who for who in found if "bank" in who.split("+")]
    for trust, events in studies:
        rows = {row.observer.label: row.epsilon for row in Statement.of(events, trust, 1e-5).rows}
        for who in set(found) & set(rows):
            assert (math.inf if found[who] is None else found[who]) >= rows[who] * (1 - 1e-9)
    assert found["clinic+shop"] is None
    assert 2.0 < found["others"] < math.inf


# --- the guide to alignment says what the code says: who learns what, and what becomes of cells

KINDS = [(mode, hidden) for hidden in (False, True) for mode in ("ot", "dh", "helper")] + [("fuzzy", False)]


def leakage_table(owners: int) -> str:
    """What the page prints for so many parties."""
    trust = Roster.of({f"party{k}": Schema({"x": number(0, 1)}) for k in range(owners)}).trust
    lines = ["| mode | who | learns | to learn more |", "|---|---|---|---|"]
    for mode, hidden in KINDS if owners == 2 else KINDS[:-1]:
        *leaks, last = AlignmentTask(trust, (Key("id"),), mode=mode, hidden=hidden).leakage
        assert (last.who, last.learns) == ("anybody else", "nothing")  # said once, below the tables
        name = f"`{mode}`, hidden" if hidden else f"`{mode}`"
        for leak in leaks:
            learns = leak.learns.replace("; who leads,", ". Who leads,")  # too long for one sentence
            lines.append(f"| {name} | {leak.who} | {learns} | {leak.beyond} |")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("owners", [2, 3])
def test_the_leakage_tables_of_the_guide_are_those_of_the_code(owners):
    page, table = (DOCS / "explanation" / "alignment-eyes.md").read_text(encoding="utf-8"), leakage_table(owners)
    assert table in page, f"docs/explanation/alignment-eyes.md must hold\n\n{table}"
    assert leakage_table(7) == leakage_table(3)


def test_the_examples_of_rules_are_what_the_code_does():
    guide = (DOCS / "how-to" / "alignment.md").read_text(encoding="utf-8")
    examples = re.findall(r"^\| (`\w+ = .*?) \| (.+?) \| `(.*?)` \|$", guide, re.MULTILINE)
    assert {"kind", "case", "blanks", "unicode", "accents"} <= {row[0].split()[0].strip("`") for row in examples}
    for rule, cells, expected in examples:
        key = Key("x", **dict(re.findall(r'(\w+) = "(\w+)"', rule)))
        written = re.findall(r"`([^`]*)`", cells)
        place = CellLocation("page", "x", np.arange(1, len(written) + 1))
        assert set(key.normalise(pa.array(written), place).to_pylist()) == {expected}, rule


# --- words and charts


@pytest.mark.parametrize(
    ("shown", "cases"),
    [
        (wording.seconds, {0: "0 s", 3.4: "3.4 s", 0.0123: "12 ms", 0.00123: "1.2 ms", 125: "2 min 5 s",
                         4330: "1 h 12 min"}),
        (wording.size, {0: "0 B", 900: "900 B", 999.9: "1.0 kB", 1_234_567: "1.2 MB", 345e9: "345 GB"}),
        (wording.power, {1e-5: "10⁻⁵", 2.5e-6: "2.5·10⁻⁶", 0.05: "0.05", 3e-12: "3·10⁻¹²"}),
        (wording.join_names, {"": "", "a": "a", "abc": "a, b and c", "abcdefgh": "a, b, c, d, e and 3 more"}),
    ],
    ids=["seconds", "sizes", "deltas", "lists"],
)  # fmt: skip
def test_words_for_numbers_and_lists(shown, cases):
    assert {value: shown(value) for value in cases} == cases


@given(st.floats(1e-6, 15))
def test_epsilon_and_its_factor_are_never_rounded_down(value):
    assert float(wording.epsilon(value)) >= value
    assert float(wording.times(value).replace(",", "")) >= math.exp(value)
