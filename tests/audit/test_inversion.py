"""Can columns be recovered from what is seen?"""

from __future__ import annotations

import json
import stat
import sys

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from colonnade import LogisticRegression
from colonnade.audit.attacks import Views, invert, psnr, ssim
from colonnade.audit.attacks.inversion import recognised
from colonnade.audit.attacks.pictures import as_pictures
from colonnade.errors import DataError, StudyError
from colonnade.models.federation import Roster
from colonnade.models.newcomers import same_people
from colonnade.report.attacks import render_attack
from colonnade.tables import Schema
from tests.support.errors import refused
from tests.support.pages import Page

SHAPE = (8, 6)


def pictures(count, seed):
    """Bright bars on dark ground: two numbers a picture."""
    draw = np.random.default_rng(seed)
    rows, columns = np.mgrid[: SHAPE[0], : SHAPE[1]]
    middle, slope = draw.uniform(0, 6, (count, 1, 1)), draw.uniform(-1, 1, (count, 1, 1))
    return np.exp(-((columns - middle - slope * (rows - 4)) ** 2)).reshape(count, -1)


def views(noise, width=32):
    draw = np.random.default_rng(7)
    weights = draw.normal(size=(SHAPE[0] * SHAPE[1], width))
    known, asked = pictures(400, 1), pictures(60, 2)
    seen = [np.tanh(each @ weights / 4) for each in (known, asked)]
    seen = [each + noise * draw.normal(size=each.shape) for each in seen]
    return Views(seen[0], known, seen[1], asked, "noised embeddings")


def test_least_squares_recovers_what_is_not_protected_and_nothing_under_much_noise():
    clear = invert(views(0.0), "ridge", shape=SHAPE)
    assert clear.found.psnr > clear.blind.psnr + 6
    assert clear.found.ssim > 0.8 > 0.3 > clear.blind.ssim
    assert clear.found.explained > 0.8
    assert clear.found.recognised > 0.9
    hidden = invert(views(20.0), "ridge", shape=SHAPE)
    assert hidden.found.explained < 0.05
    assert hidden.found.recognised < 0.15
    assert abs(hidden.found.psnr - hidden.blind.psnr) < 0.5
    assert clear.blind == hidden.blind
    assert clear.blind.recognised == pytest.approx(1 / 60, abs=0.05)


@pytest.mark.parametrize("kind", ["mlp", "cnn"])
def test_networks_recover_columns_too(kind):
    pytest.importorskip("torch")
    found = invert(views(0.0), kind, shape=SHAPE, epochs=20, width=48)
    assert found.found.explained > 0.4
    assert found.found.recognised > 0.4


def test_pictures_with_channels_come_back_in_the_order_of_their_columns():
    pytest.importorskip("torch")
    draw = np.random.default_rng(8)
    shape = (5, 7, 3)
    colours = draw.random((300, 3))  # each picture is of one colour, brighter to the right
    rows = (colours[:, None, None, :] * np.linspace(0.2, 1, 7)[:, None]).repeat(5, axis=1).reshape(300, -1)
    found = invert(Views(colours[:250], rows[:250], colours[250:], rows[250:]), "cnn", shape=shape, epochs=25, width=32)
    assert found.found.explained > 0.4  # of mixed channels it would be nothing


def test_the_best_decoder_is_chosen_on_people_held_out():
    ridge, best, again = (invert(views(0.05), kind, epochs=3, width=16) for kind in ("ridge", "auto", "auto"))
    assert best.found.psnr >= ridge.found.psnr - 0.5
    assert (again.guesses == best.guesses).all()


def test_without_torch_least_squares_is_left(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    ridge, best = (invert(views(0.05), kind) for kind in ("ridge", "auto"))
    assert (best.guesses == ridge.guesses).all()
    refused(StudyError, "ST329", invert, views(0.05), "mlp")


def test_recognising_counts_ties_by_their_share():
    truth = np.eye(4)
    assert recognised(truth, truth) == 1.0
    assert recognised(truth, np.zeros((4, 4))) == 0.25
    assert recognised(truth, truth[::-1]) == 0.0


def test_the_page_shows_true_and_recovered_pictures():
    found = invert(views(0.0), "ridge", shape=SHAPE)
    page = Page(render_attack("runs", found))
    assert len(page.all("svg")) == 2
    assert len([each for each in page.all("rect") if each.get("fill")]) > 500
    assert "true" in page.words
    assert "recovered" in page.words
    assert "The attacker needed the noised embeddings" in page.words


def test_what_does_not_belong_together_is_refused():
    some = views(0.0)
    refused(DataError, "DA001", Views, some.auxiliary_seen, some.auxiliary, some.seen[:, 1:], some.truth)
    refused(DataError, "DA002", Views, some.auxiliary_seen[1:], some.auxiliary, some.seen, some.truth)
    refused(DataError, "DA003", Views, some.auxiliary_seen[:5], some.auxiliary[:5], some.seen, some.truth)
    refused(DataError, "DA004", Views, some.auxiliary_seen * np.inf, some.auxiliary, some.seen, some.truth)
    refused(DataError, "DA016", "9", invert, some, "ridge", shape=(9, 9))
    refused(StudyError, "ST002", invert, some, "cnn")
    refused(StudyError, "ST001", invert, some, "magic")


# --- how alike two pictures are


def by_hand(first, second, side, span):
    """Structural similarity, window by window."""
    c1, c2, found = (0.01 * span) ** 2, (0.03 * span) ** 2, []
    for row in range(first.shape[0] - side + 1):
        for column in range(first.shape[1] - side + 1):
            a, b = (each[row : row + side, column : column + side].ravel() for each in (first, second))
            both = np.cov(a, b)
            found.append(
                (2 * a.mean() * b.mean() + c1)
                * (2 * both[0, 1] + c2)
                / ((a.mean() ** 2 + b.mean() ** 2 + c1) * (both[0, 0] + both[1, 1] + c2))
            )
    return np.mean(found)


@pytest.mark.parametrize(("shape", "side", "span"), [((28, 14), 7, 1.0), ((9, 12), 7, 255.0), ((4, 6), 3, 1.0)])
def test_structural_similarity_is_that_of_every_window(shape, side, span):
    draw = np.random.default_rng(3)
    first = draw.random((3, *shape)) * span
    second = np.clip(first + draw.normal(size=first.shape) * 0.2 * span, 0, span)
    assert ssim(first, second, span) == pytest.approx(
        [by_hand(a, b, side, span) for a, b in zip(first, second, strict=True)]
    )


def test_equal_pictures_channels_and_decibels():
    pictures = np.random.default_rng(4).random((2, 16, 32, 3))
    assert ssim(pictures, pictures) == pytest.approx(1.0)
    assert (psnr(pictures, pictures) == 100.0).all()
    other = pictures[..., ::-1]
    each = [ssim(pictures[..., k], other[..., k]) for k in range(3)]
    assert ssim(pictures, other) == pytest.approx(np.mean(each, axis=0))
    black = np.zeros((2, 8, 8))
    assert psnr(black, black + 0.1) == pytest.approx(20.0)
    assert psnr(black, black + 1.0, span=10.0) == pytest.approx(20.0)
    assert ssim(black, black + 1.0)[0] == pytest.approx(1e-4 / 1.0001)


def test_what_is_no_picture_is_refused():
    refused(DataError, "DA016", "28", "14", as_pictures, np.zeros((1, 391)), (28, 14))
    refused(DataError, "DA017", psnr, np.zeros((1, 4)), np.zeros((1, 5)))
    refused(DataError, "DA015", ssim, np.zeros((1, 2, 9)), np.zeros((1, 2, 9)))
    refused(DataError, "DA018", ssim, np.zeros((1, 9)), np.zeros((1, 9)))


# --- ``colonnade audit membership | inversion | labels``: what they print, what they leave behind, what they refuse


NUMBER = '[columns.{}]\ntype = "number"\nlow = 0\nhigh = 1\n'
FEW = ("--shadows", 8)


def people(rows: int, seed: int) -> pa.Table:
    draw = np.random.default_rng(seed)
    cells = {name: np.round(draw.random(rows), 3) for name in ("a", "b", "c")}
    ill = draw.random(rows) < cells["a"]
    return pa.table(
        {"person": [f"{seed}-{k:04d}" for k in range(rows)], **cells, "ill": ["yes" if each else "no" for each in ill]}
    )


@pytest.fixture
def there(tmp_path, monkeypatch, stream):
    """A model, and files of members and others: of both parties side by side, and in different orders."""
    monkeypatch.chdir(tmp_path)
    schemas = {
        "bank": Schema.from_toml("".join(NUMBER.format(name) for name in "ab")),
        "shop": Schema.from_toml(NUMBER.format("c") + '[columns.ill]\ntype = "flag"\n'),
    }
    for group, seed in (("members", 1), ("others", 2)):
        table = people(80, seed)
        pyarrow.csv.write_csv(table, tmp_path / f"{group}.csv")
        pyarrow.csv.write_csv(table.select(["person", "a", "b"]), tmp_path / f"{group}-bank.csv")
        mixed = table.take(pa.array(np.random.default_rng(3).permutation(80)))
        pyarrow.csv.write_csv(mixed.select(["person", "c", "ill"]), tmp_path / f"{group}-shop.csv")
    members = same_people(dict.fromkeys(schemas, tmp_path / "members.csv"), schemas, "person", "a test")
    model = LogisticRegression(epsilon=1.0, label="shop.ill", method="one-shot")
    model.simulate(members, Roster.of(schemas), stream).save(tmp_path / "model.json")
    return tmp_path


def test_members_are_attacked_and_the_promise_stands_beside(colonnade, there):
    text = colonnade("audit", "membership", "model.json", "--members", "members.csv", "--others", "others.csv", *FEW)
    assert "balanced accuracy" in text
    assert "leaves any attack at most" in text
    assert "The attacker needed the model" in text
    page = there / "runs" / "audit" / "membership.html"
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    assert len(Page(page.read_text(encoding="utf-8")).all("svg")) == 4
    figures = json.loads((there / "runs" / "audit" / "membership.json").read_text(encoding="utf-8"))
    assert figures["attack"] == "membership"
    assert figures["this_model"]["members"] == 80
    assert 0.5 < figures["promise"]["accuracy"] < 0.6


def test_files_of_each_party_are_matched_by_ids(colonnade, there):
    words = [f"{party}={group}-{party}.csv" for group in ("members", "others") for party in ("bank", "shop")]
    given = ("--members", words[0], "--members", words[1], "--others", words[2], "--others", words[3])
    facts = colonnade("audit", "membership", "model.json", *given, "--id", "person", "--offline", *FEW, "--json")
    assert (facts["members"], facts["others"], facts["offline"]) == (80, 80, True)
    whole = ("--members", "members.csv", "--others", "others.csv")
    again = colonnade("audit", "membership", "model.json", *whole, "--offline", *FEW, "--json")
    assert facts["this_model"]["members"] == again["this_model"]["members"]


def test_columns_are_recovered_from_scores(colonnade, there):
    given = ("--party", "bank", "--people", "others.csv", "--auxiliary", "members.csv", "--decoder", "ridge")
    facts = colonnade("audit", "inversion", "model.json", *given, "--shape", "1x2", "--json", code=DataError.exit_code)
    assert "3 by 3" in facts["message"]
    facts = colonnade("audit", "inversion", "model.json", *given, "--json")
    assert facts["seen"] == "exact scores"
    assert facts["people"] == facts["auxiliary"] == 80
    assert facts["found"]["explained"] < 1
    assert "not for publication" in colonnade("audit", "inversion", "model.json", *given)
    assert (there / "runs" / "audit" / "inversion.html").exists()


@pytest.mark.parametrize(
    ("words", "said", "code"),
    [
        (["membership", "none.json", "--members", "members.csv", "--others", "others.csv"], "none.json", StudyError),
        (["membership", "model.json", "--members", "bank=members.csv", "--others", "others.csv"], "shop", DataError),
        (["membership", "model.json", "--members", "mill=members.csv", "--others", "others.csv"], "mill", DataError),
        (["membership", "model.json", "--members", "members-bank.csv", "--others", "others.csv"], "'c'", DataError),
        (
            ["membership", "model.json", "--members", "members.csv", "--others", "others.csv", "--kept", "x.npz"],
            "--kept has no use",
            StudyError,
        ),
        (
            ["membership", "model.json", "--members", "members.csv", "--others", "members.csv", "--id", "person"],
            "80 of the people of --others are among those of --members, too",
            DataError,
        ),
        (
            ["membership", "model.json", "--members", "members.csv", "--others", "others.csv", "--id", "name"],
            "no column 'name', which --id names",
            DataError,
        ),
        (
            [
                *("membership", "model.json", "--members", "bank=members-bank.csv", "--members"),
                *("shop=members-shop.csv", "--others", "others.csv"),
            ],
            "in different orders: say --id person",
            DataError,
        ),
        (["labels", "model.json", "--members", "members.csv"], "nobody is told anything", StudyError),
        (["labels", "model.json", "--members", "members.csv", "--known", "80"], "fewer than that", DataError),
        (
            ["inversion", "model.json", "--party", "x", "--people", "others.csv", "--auxiliary", "members.csv"],
            "no party x",
            StudyError,
        ),
        (
            [
                *("inversion", "model.json", "--party", "bank", "--people", "others.csv"),
                *("--auxiliary", "members.csv", "--shape", "2by1"),
            ],
            "--shape",
            StudyError,
        ),
    ],
    ids=["model", "party lacks", "stranger", "column", "kept", "twice", "id", "order", "labels", "known", "party",
        "shape"],
)  # fmt: skip
def test_mistakes_are_one_sentence(colonnade, there, words, said, code):
    text = colonnade("audit", *words, code=code.exit_code)
    assert text.startswith("colonnade: ")
    assert said in text
    assert "Traceback" not in text


def test_a_cell_that_does_not_fit_is_found_in_its_party(colonnade, there):
    wrong = (there / "others.csv").read_text(encoding="utf-8").replace('"no"', '"perhaps"', 1)
    (there / "others.csv").write_text(wrong, encoding="utf-8")
    words = ("--members", "members.csv", "--others", "others.csv")
    text = colonnade("audit", "membership", "model.json", *words, *FEW, code=DataError.exit_code)
    assert "the files of shop" in text
    assert "perhaps" not in text


def test_too_few_models_are_refused_before_the_first_is_fitted(colonnade, there, monkeypatch):
    monkeypatch.setattr(LogisticRegression, "simulate", lambda *_, **__: pytest.fail("a model was fitted"))
    rows = (there / "others.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    (there / "few.csv").write_text("".join(rows[:21]), encoding="utf-8")
    given = ("--members", "members.csv", "--others", "few.csv")
    text = colonnade("audit", "membership", "model.json", *given, "--shadows", 8, code=DataError.exit_code)
    assert "at least 16 shadow models" in text  # 3 of them without each person, who is in four of five
    assert "at least 8, and more" in " ".join(colonnade("audit", "membership", "--help").split())


def test_every_attack_has_help(colonnade):
    for name in ("membership", "inversion", "labels"):
        assert "--json" in colonnade("audit", name, "--help")
        assert name in colonnade("audit", "--help")
