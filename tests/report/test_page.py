from __future__ import annotations

import copy
import math
import re
from dataclasses import replace

import numpy as np
import pytest

from colonnade.errors import StudyError
from colonnade.kinds import PCA, JointPrediction, LogisticRegression, PolynomialSum
from colonnade.kinds.pca.report import SECTION, noise_edge
from colonnade.models import Estimator
from colonnade.models.registry import rows, section_of
from colonnade.privacy.events import NonPrivate
from colonnade.privacy.observers import Trust
from colonnade.privacy.rows import rounded_up
from colonnade.privacy.statement import Statement
from colonnade.protocols.align import Aligning
from colonnade.report import write_report
from colonnade.report.section import Section
from colonnade.tables import Schema, category, flag, number
from colonnade.tables.keys import Key
from tests.support.errors import raises
from tests.support.pages import Page
from tests.support.reports import COLUMNS, as_fitted, make_model, make_run, make_statement, rendered

HOSTILE = "<script>alert(1)</script>\"'&amp;<img src=http://evil.example/x>"


@pytest.fixture
def page(run, statement, model, evaluation):
    return Page(rendered(run, statement, model, evaluation))


def test_structure(page):
    assert page.all("html")[0]["lang"] == "en"
    assert any(meta.get("name") == "viewport" for meta in page.all("meta"))
    assert page.headings[0] == 1
    assert page.headings.count(1) == 1
    assert all(later <= earlier + 1 for earlier, later in zip(page.headings, page.headings[1:], strict=False))
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    for link in page.all("a"):
        assert link["href"][0] == "#"
        assert link["href"][1:] in ids


def test_sections_come_in_order(page):
    names = [section["id"] for section in page.all("section")]
    assert names == ["privacy", "people", "seen", "result", "evaluation", "cost", "check"]


def test_tables_and_charts_speak_to_a_screen_reader(page):
    assert page.all("th")
    assert all(head["scope"] in ("col", "row") for head in page.all("th"))
    charts = [svg for svg in page.all("svg") if svg.get("class") == "chart"]
    assert len(charts) == 2 * 5
    ids = {attrs.get("id"): tag for tag, attrs in page.tags}
    for svg in charts:
        assert svg["role"] == "img"
        assert [ids[name] for name in svg["aria-labelledby"].split()] == ["title", "desc"]


def test_nothing_is_fetched(page, run, statement, model, evaluation):
    text = rendered(run, statement, model, evaluation)
    assert not re.search(r"https?:|@import|//[a-z]", text)
    assert "<script" not in text
    for tag, attrs in page.tags:
        assert tag not in ("script", "link", "img", "iframe", "object", "base", "form")
        assert "src" not in attrs
        assert "style" not in attrs
    assert all(address.startswith("#") for address in re.findall(r"url\(([^)]*)\)", text))


def test_the_opening_says_it_in_plain_words(page, statement):
    worst = max(row.epsilon for row in statement.rows if math.isfinite(row.epsilon))
    assert "bank, shop and clinic computed one PCA of 24 columns; nobody, the coordinator included" in page.words
    for figure in (rounded_up(worst, 3), "10⁻⁵", "24", "5.2 s", "13.5 MB"):
        assert figure in page.words


def test_every_observer_has_its_line(page, statement):
    for row in statement.rows:
        assert row.observer.label.replace("+", "") in page.words.replace("+ ", "").replace("+", "")
        assert row.adjacency.value in page.words
        assert (rounded_up(row.epsilon, 3) if math.isfinite(row.epsilon) else row.reason) in page.words
    assert "no promise" in page.words
    for row in statement.missing_noise:
        assert row.condition in page.words
        assert (rounded_up(row.epsilon, 3) if math.isfinite(row.epsilon) else row.reason) in page.words
    for text in statement.assumptions:
        assert text in page.words


def test_the_reader_counts_as_the_coordinator(page):
    assert "counts as the coordinator" in page.words
    assert "not as the analyst" in page.words


def test_charts_hold_the_numbers(page, model, evaluation):
    for ratio in model.explained_variance_ratio_:
        assert f"{100 * ratio:.1f} %" in page.words
    strongest = float(model.components_.flat[np.abs(model.components_).argmax()])
    assert f"{abs(strongest):.2f}" in page.words
    for line in evaluation["lines"]:
        assert line["name"] in page.words
        for mean, std in zip(line["mean"], line["std"], strict=True):
            assert f"{100 * mean:.1f} ± {100 * std:.1f} %" in page.words
    for phase in ("multiply", "deal", "own block"):
        assert phase in page.words
    assert "4.6 MB" in page.words


def test_many_columns_are_cut_to_the_strongest_and_said_so(run, statement, model):
    assert "The 15 strongest of 24 columns" in Page(rendered(run, statement, model)).words
    few = make_model({"bank": ["income"], "shop": ["visits"], "clinic": ["bmi"]}, n_components=1)
    assert "strongest of" not in Page(rendered(run, statement, few)).words


def test_columns_are_grouped_by_the_longest_fitting_party(run):
    owners = ("bank", "bank.north", "shop")
    model = make_model({"bank": ["a"], "bank.north": ["b"], "shop": ["c.d"]}, n_components=1)
    words = Page(rendered(run, make_statement(owners), model)).words
    assert "bank.north, b:" in words
    assert "shop, c.d:" in words


def test_names_of_others_stay_text(run, evaluation):
    owners = (HOSTILE, "shop", "clinic\u202e\x00")
    columns = {owner: [f"{HOSTILE}{k}" for k in range(3)] for owner in owners}
    hostile = make_run(columns)
    for key in ("study", "digest", "started", "ended", "platform"):
        hostile[key] = HOSTILE
    hostile["task"] |= {"noise": HOSTILE, "law": HOSTILE, "gamma": HOSTILE, "primes": HOSTILE}
    hostile["parties"][HOSTILE]["phases"][HOSTILE] = {"wall": 3.0, "cpu": 1.0}
    evaluation |= {"title": HOSTILE, "note": HOSTILE}
    evaluation["lines"][0]["name"] = HOSTILE
    text = rendered(hostile, make_statement(owners), make_model(columns), evaluation)
    page = Page(text)
    assert not page.all("script")
    assert not page.all("img")
    assert HOSTILE in page.words
    assert "\u202e" not in text
    assert "\x00" not in text


def test_lone_surrogates_do_not_stop_the_file(tmp_path, run, statement, model):
    run["study"] = "a \ud800 name"
    assert "a \N{REPLACEMENT CHARACTER} name" in write_report(tmp_path, run, statement, model, SECTION).read_text(
        "utf-8"
    )


def _without(value, path):
    value = copy.deepcopy(value)
    inner = value
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    return value


def _paths(value, before=()):
    for key, inner in value.items():
        yield (*before, key)
        if isinstance(inner, dict):
            yield from _paths(inner, (*before, key))


def _small_run():
    whole = make_run({"bank": ["income"]})
    phases = whole["parties"]["bank"]["phases"]
    whole["parties"]["bank"]["phases"] = {name: phases[name] for name in ("noise", "multiply")}
    return whole


def _small_statement():
    """Of a few observers: a page is written for every part of a record, and what it says of them is the same."""
    whole = make_statement(("bank", "shop"))
    return replace(whole, rows=whole.rows[:3])


def test_any_part_of_the_record_may_be_missing():
    whole, statement, model = _small_run(), _small_statement(), PCA(3, epsilon=1.0)
    for path in _paths(whole):
        Page(rendered(_without(whole, path), statement, model))


@pytest.mark.parametrize("odd", [None, [], {}, "text", 10**400, -1, math.nan, True], ids=lambda odd: str(odd)[:8])
def test_any_part_of_the_record_may_be_odd(odd):
    whole, statement, model = _small_run(), _small_statement(), PCA(3, epsilon=1.0)
    for path in _paths(whole):
        damaged = copy.deepcopy(whole)
        inner = damaged
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = odd
        Page(rendered(damaged, statement, model))


def test_rounds_and_bytes_are_told_by_phase(run, statement, model):
    words = Page(rendered(run, statement, model)).words
    assert "Rounds by phase A round is a wait for a message" in words
    count = len(run["parties"])
    assert f"deal 0 {32 * count} " in words
    assert "receive 2 0 0 B" in words
    assert "own block 0 0" not in words  # nothing was said in it


def test_records_of_earlier_releases_say_nothing_of_rounds(run, statement, model):
    for party in run["parties"].values():
        party["traffic"].pop("rounds")
        party["phases"] = {name: {"wall": 1.0, "cpu": 0.5} for name in party["phases"]}
    page = Page(rendered(run, statement, model))
    assert "Rounds by phase" not in page.words
    assert "Seconds by phase" in page.words


def test_nothing_but_the_statement_is_needed(statement):
    page = Page(rendered({}, statement, PCA(3, epsilon=1.0)))
    assert [section["id"] for section in page.all("section")] == ["privacy", "seen", "check"]


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
def test_odd_evaluations(run, statement, model, odd):
    Page(rendered(run, statement, model, odd))


def test_noise_over_everything_is_admitted(run, statement):
    words = Page(rendered(run, statement, make_model(noise_std=1e9))).words
    assert "None stands above what the noise alone would show" in words


def test_the_noise_edge_is_where_the_spectrum_ends():
    rng = np.random.default_rng(5)
    columns, std, count = 200, 3.0, 10.0
    above = np.triu(rng.normal(scale=std / math.sqrt(2), size=(columns, columns)), 1)
    noise = above + above.T + np.diag(rng.normal(scale=std, size=columns))
    assert np.linalg.eigvalsh(noise / count)[-1] == pytest.approx(noise_edge(std, columns, count), rel=0.08)


def test_two_owners_seat_the_coordinator(run):
    statement = make_statement(("bank", "shop"))
    words = Page(rendered(run, statement, make_model({"bank": ["a"], "shop": ["b"]}, n_components=1))).words
    assert "holds the third share" in words
    assert "2 are needed to see anything" in words


def test_a_thousand_owners_make_a_short_page(run):
    owners = tuple(f"owner{k:04d}" for k in range(1000))
    text = rendered(run, make_statement(owners, threshold=3), make_model())
    assert "995 more" in Page(text).words
    assert len(text) < 200_000


def test_no_promise_is_said_out_loud(run, model):
    trust = Trust(("bank", "shop", "clinic"), ("bank", "shop", "clinic"), 1)
    statement = Statement.of([NonPrivate("the raw sums were shown")], trust, 1e-5)
    words = Page(rendered(run, statement, model)).words
    assert "is promised nothing" in words
    assert "the raw sums were shown" in words


def test_a_failed_run_does_not_claim_a_result(run, statement):
    run |= {"status": "failed", "message": "shop was lost"}
    words = Page(rendered(run, statement, PCA(3, epsilon=1.0))).words
    assert "This run failed: shop was lost" in words
    assert "computed one PCA" not in words


def test_output_repeats(tmp_path, run, statement, model, evaluation):
    first = rendered(run, statement, model, evaluation)
    assert first == rendered(copy.deepcopy(run), make_statement(), make_model(), copy.deepcopy(evaluation))
    target = write_report(tmp_path, run, statement, model, SECTION, evaluation)
    assert target == tmp_path / "report.html"
    assert target.read_text("utf-8") == first
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_a_model_that_was_saved_makes_the_same_page_and_one_that_is_not_fitted_has_no_result(tmp_path, run, statement):
    model = make_model()
    model.schemas_ = {owner: Schema({name: number(0, 1) for name in held}) for owner, held in COLUMNS.items()}
    saved = Estimator.load(model.save(tmp_path / "model.json"))
    assert rendered(run, statement, saved) == rendered(run, statement, model)
    page = Page(rendered(run, statement, PCA(3, epsilon=1.0)))
    assert "one PCA of 24 columns" in page.words
    assert "result" not in [section["id"] for section in page.all("section")]


def test_every_kind_of_model_has_a_section_and_other_kinds_are_refused():
    assert all(isinstance(section_of(row.kind), Section) for row in rows() if row.kind != "sketch")
    with raises(StudyError, "ST139", "forest", "pca"):
        section_of("forest")


# --- other kinds of results


def _regression(classes=1, **more):
    """A fitted logistic regression."""
    names = [f"{owner}.{column}" for owner, held in COLUMNS.items() for column in held]
    answers = category(["never", "late", "gone"][:classes]) if classes > 1 else flag()
    model = LogisticRegression(label="bank.default", epsilon=1.0)
    model.parameters_ = model.get_params()
    model.privacy_, model.schemas_ = make_statement(), {"bank": Schema({"income": number(0, 1), "default": answers})}
    model.restore(
        {
            "feature_names_in": names,
            "coef": np.random.default_rng(3).normal(size=(classes, len(names))),
            "intercept": np.linspace(-1.25, 1, classes),
            "method": "one-shot",
            "noise_std": 60.0,
            "count": 4987.3,
            "ridge": 123.4,
            "clipped": 0,
            "protection": {"bank": 1.23456, "shop": 0.7, "clinic": None},
            **more,
        }
    )
    return model


def test_a_regression_shows_coefficients_by_party_and_what_they_tell(run, statement):
    model = _regression()
    page = Page(rendered(run, statement, model))
    sections = [section["id"] for section in page.all("section")]
    assert sections == ["privacy", "people", "seen", "result", "cost", "check"]
    strongest = max(model.coef_[0], key=abs)
    for text in (
        "one logistic regression on 24 columns", "of bank.default", "one-shot", "\N{MINUS SIGN}1.250", "123.4",
        "skellam, deviation 60", "The 20 strongest of 24 columns", f"{abs(strongest):.2f}", "1.235", "0.700",
        "no promise",
    ):  # fmt: skip
        assert text in page.words, text
    assert "accuracy" not in page.words


def test_a_regression_of_several_classes_and_an_odd_one(run, statement):
    words = Page(rendered(run, statement, _regression(3))).words
    for text in ("never", "late", "gone", "+1.000"):
        assert text in words
    run["task"] |= {"rounds": 400, "batch": 25, "sampling": "poisson"}
    assert "poisson, 25 people" in Page(rendered(run, statement, _regression())).words
    words = Page(rendered(run, statement, _regression(ridge=None, count=None))).words
    assert "A logistic regression of bank.default on 24 columns" in words
    assert "Ridge" not in words


def test_signed_bars_stand_on_both_sides_of_zero(run, statement):
    model = _regression()
    model.coef_ = np.zeros((1, 24))
    Page(rendered(run, statement, model))
    model.coef_[0, :2] = 2.0, -1.0
    looks = [rect.get("class") for rect in Page(rendered(run, statement, model)).all("rect")]
    assert looks.count("neg") == 2  # one for a page and one for a phone
    assert looks.count("pos") > 2


def test_sums_are_shown_with_their_noise(run, statement):
    texts = ["bank.a * shop.b", HOSTILE]
    learned = {"values": [-1234.5, 2.0], "deviations": [10.25, 0.5], "feature_names_in": ["bank.a", "shop.b"]}
    model = as_fitted(PolynomialSum(texts, epsilon=1.0), learned | {"expressions": texts, "gamma": 4096})
    words = Page(rendered(run, statement, model)).words
    for text in ("2 sums over the columns", "bank.a * shop.b", "\N{MINUS SIGN}1,234", "10.25", HOSTILE):
        assert text in words, text


def test_a_report_on_predictions_holds_none(run, statement):
    told = {"ids": ["P1", "P2"], "scores": [[7.75], [1.0]], "predictions": [7.75, 1.0]}
    model = as_fitted(JointPrediction(to="bank", exact=True), told)
    page = Page(rendered(run, statement, model))
    assert "predictions for bank" in page.words
    assert "bank was told the exact scores of 2 people" in page.words
    assert "P1" not in page.words
    assert "7.75" not in page.words
    heads = [text for text in page.text if text in ("Answers", "Published result")]
    assert "Published result" not in heads


# --- whom it is about


def test_the_alignment_is_told_in_counts_with_who_learned_what(run, statement, model):
    words = Page(rendered(run, statement, model)).words
    for text in ("by name and birth: 4,990 people", "9,057", "9,101", "41", "1.8 s", "no helper is trusted"):
        assert text in words, text
    for leak in Aligning(statement.trust, (Key("x"),)).leakage:
        for text in (leak.who, leak.learns, leak.beyond):
            assert text in words
    assert "tables below say" in words
    assert "Besides what the alignment told" in words


def test_a_hidden_alignment_and_one_that_is_used_again(run, statement, model):
    run["alignment"] |= {"hidden": True, "reused": True, "matched": None}
    for facts in run["parties"].values():
        facts["alignment"]["matched"] = None
    words = Page(rendered(run, statement, model)).words
    said = ("No party knows which", "used again", "at most lengths of lists", "told only that no list had changed")
    for text in said:
        assert text in words, text
    assert "That took" not in words
    assert "people in common" not in words
    (owner, *_) = Aligning(statement.trust, (Key("x"),), hidden=True).leakage
    assert owner.learns in words


def test_of_an_alignment_that_is_used_again_a_party_knows_the_count(run, statement, model):
    run["alignment"] |= {"reused": True, "matched": None}
    assert "by name and birth: 4,990 people" in Page(rendered(run, statement, model)).words


def test_runs_without_an_alignment_look_as_before(run, statement, model):
    del run["alignment"]
    for facts in run["parties"].values():
        del facts["alignment"]
    page = Page(rendered(run, statement, model))
    assert "people" not in [section["id"] for section in page.all("section")]
    assert "alignment" not in page.words
    assert "There was nothing else." in page.words


@pytest.mark.parametrize("mode", ["fuzzy", "guess", None])
def test_a_mode_that_does_not_fit_has_no_table(run, statement, model, mode):
    run["alignment"]["mode"] = mode
    words = Page(rendered(run, statement, model)).words
    assert "4,990 people" in words
    assert "Who learned what from this" not in words
