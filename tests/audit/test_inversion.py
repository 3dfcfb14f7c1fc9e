"""Can columns be recovered from what is seen?"""

from __future__ import annotations

import json
import stat
import sys
from functools import cache, partial

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


@cache
def views(noise, width=32):
    draw = np.random.default_rng(7)
    weights = draw.normal(size=(SHAPE[0] * SHAPE[1], width))
    known, asked = pictures(400, 1), pictures(60, 2)
    seen = [np.tanh(each @ weights / 4) for each in (known, asked)]
    seen = [each + noise * draw.normal(size=each.shape) for each in seen]
    return Views(seen[0], known, seen[1], asked, "noised embeddings")


def test_least_squares_recovers_what_is_not_protected_and_nothing_under_much_noise():
    clear, hidden = (invert(views(noise), "ridge", shape=SHAPE) for noise in (0.0, 20.0))
    assert clear.found.psnr > clear.blind.psnr + 6
    assert clear.found.ssim > 0.8 > 0.3 > clear.blind.ssim
    assert clear.found.explained > 0.8 > 0.05 > hidden.found.explained
    assert clear.found.recognised > 0.9 > 0.15 > hidden.found.recognised
    assert abs(hidden.found.psnr - hidden.blind.psnr) < 0.5
    assert clear.blind == hidden.blind
    assert clear.blind.recognised == pytest.approx(1 / 60, abs=0.05)
    page = Page(render_attack("runs", clear))
    assert len(page.all("svg")) == 2
    assert len([each for each in page.all("rect") if each.get("fill")]) > 500, "true and recovered pictures"
    assert "The attacker needed the noised embeddings" in page.words


@pytest.mark.parametrize("kind", ["mlp", "cnn"])
def test_networks_recover_columns_too(kind):
    pytest.importorskip("torch")
    found = invert(views(0.0), kind, shape=SHAPE, epochs=20, width=48).found
    assert min(found.explained, found.recognised) > 0.4


def test_pictures_with_channels_come_back_in_the_order_of_their_columns():
    pytest.importorskip("torch")
    draw = np.random.default_rng(8)
    shape = (5, 7, 3)
    colours = draw.random((300, 3))  # each picture is of one colour, brighter to the right
    rows = (colours[:, None, None, :] * np.linspace(0.2, 1, 7)[:, None]).repeat(5, axis=1).reshape(300, -1)
    found = invert(Views(colours[:250], rows[:250], colours[250:], rows[250:]), "cnn", shape=shape, epochs=25, width=32)
    assert found.found.explained > 0.4  # of mixed channels it would be nothing


def test_the_best_decoder_is_chosen_on_people_held_out_and_without_torch_least_squares_is_left(monkeypatch):
    ridge, best, again = (invert(views(0.05), kind, epochs=3, width=16) for kind in ("ridge", "auto", "auto"))
    assert best.found.psnr >= ridge.found.psnr - 0.5
    assert (again.guesses == best.guesses).all()
    monkeypatch.setitem(sys.modules, "torch", None)
    assert (invert(views(0.05), "auto").guesses == ridge.guesses).all()
    refused(StudyError, "ST329", invert, views(0.05), "mlp")


def test_recognising_counts_ties_by_their_share():
    truth = np.eye(4)
    assert [recognised(truth, guess) for guess in (truth, 0 * truth, truth[::-1])] == [1.0, 0.25, 0.0]


def test_what_does_not_belong_together_or_is_no_picture_is_refused():
    some = views(0.0)
    seen, known, other, truth = some.auxiliary_seen, some.auxiliary, some.seen, some.truth
    for error, said, call, *words in (
        (DataError, "DA001", Views, seen, known, other[:, 1:], truth),
        (DataError, "DA002", Views, seen[1:], known, other, truth),
        (DataError, "DA003", Views, seen[:5], known[:5], other, truth),
        (DataError, "DA004", Views, seen * np.inf, known, other, truth),
        (DataError, ["DA016", "9"], partial(invert, shape=(9, 9)), some, "ridge"),
        (StudyError, "ST002", invert, some, "cnn"),
        (StudyError, "ST001", invert, some, "magic"),
        (DataError, ["DA016", "28", "14"], as_pictures, np.zeros((1, 391)), (28, 14)),
        (DataError, "DA017", psnr, np.zeros((1, 4)), np.zeros((1, 5))),
        (DataError, "DA015", ssim, np.zeros((1, 2, 9)), np.zeros((1, 2, 9))),
        (DataError, "DA018", ssim, np.zeros((1, 9)), np.zeros((1, 9))),
    ):
        refused(error, said, call, *words)


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
    pictures, black = np.random.default_rng(4).random((2, 16, 32, 3)), np.zeros((2, 8, 8))
    other = pictures[..., ::-1]
    assert ssim(pictures, pictures) == pytest.approx(1.0)
    each = [ssim(pictures[..., k], other[..., k]) for k in range(3)]
    assert ssim(pictures, other) == pytest.approx(np.mean(each, axis=0))
    assert ssim(black, black + 1.0)[0] == pytest.approx(1e-4 / 1.0001)
    assert (psnr(pictures, pictures) == 100.0).all()
    for brighter, span in ((0.1, 1.0), (1.0, 10.0)):
        assert psnr(black, black + brighter, span=span) == pytest.approx(20.0)


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
        mixed = table.take(pa.array(np.random.default_rng(3).permutation(80)))
        for file, rows in (
            ("", table), ("-bank", table.select(["person", "a", "b"])), ("-shop", mixed.select(["person", "c", "ill"])),
        ):  # fmt: skip
            pyarrow.csv.write_csv(rows, tmp_path / f"{group}{file}.csv")
    members = same_people(dict.fromkeys(schemas, tmp_path / "members.csv"), schemas, "person", "a test")
    model = LogisticRegression(epsilon=1.0, label="shop.ill", method="one-shot")
    model.simulate(members, Roster.of(schemas), stream).save(tmp_path / "model.json")
    return tmp_path


def test_members_are_attacked_and_the_promise_stands_beside(colonnade, there):
    text = colonnade("audit", "membership", "model.json", *WHOLE, *FEW)
    for said in ("balanced accuracy", "leaves any attack at most", "The attacker needed the model"):
        assert said in text
    page = there / "runs" / "audit" / "membership.html"
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    assert len(Page(page.read_text(encoding="utf-8")).all("svg")) == 4
    figures = json.loads((there / "runs" / "audit" / "membership.json").read_text(encoding="utf-8"))
    assert (figures["attack"], figures["this_model"]["members"]) == ("membership", 80)
    assert 0.5 < figures["promise"]["accuracy"] < 0.6


def test_files_of_each_party_are_matched_by_ids(colonnade, there):
    files = [f"--{group}={party}={group}-{party}.csv" for group in ("members", "others") for party in ("bank", "shop")]
    apart, whole = (
        colonnade("audit", "membership", "model.json", *given, "--id", "person", "--offline", *FEW, "--json")
        for given in (files, WHOLE)
    )
    assert (apart["members"], apart["others"], apart["offline"]) == (80, 80, True)
    assert apart["this_model"]["members"] == whole["this_model"]["members"]


def test_columns_are_recovered_from_scores(colonnade, there):
    given = ("--party", "bank", "--people", "others.csv", "--auxiliary", "members.csv", "--decoder", "ridge")
    facts = colonnade("audit", "inversion", "model.json", *given, "--shape", "1x2", "--json", code=DataError.exit_code)
    assert "3 by 3" in facts["message"]
    facts = colonnade("audit", "inversion", "model.json", *given, "--json")
    assert (facts["seen"], facts["people"], facts["auxiliary"]) == ("exact scores", 80, 80)
    assert facts["found"]["explained"] < 1
    assert "not for publication" in colonnade("audit", "inversion", "model.json", *given)
    assert (there / "runs" / "audit" / "inversion.html").exists()


WHOLE = ("--members", "members.csv", "--others", "others.csv")
MEMBERS = ("membership", "model.json", "--others", "others.csv", "--members")
RECOVER = ("inversion", "model.json", "--people", "others.csv", "--auxiliary", "members.csv", "--party")
MISTAKES = [
    (["membership", "none.json", *WHOLE], "none.json", StudyError),
    ([*MEMBERS, "bank=members.csv"], "shop", DataError),
    ([*MEMBERS, "mill=members.csv"], "mill", DataError),
    ([*MEMBERS, "members-bank.csv"], "'c'", DataError),
    ([*MEMBERS, "members.csv", "--kept", "x.npz"], "--kept has no use", StudyError),
    (
        ["membership", "model.json", "--members", "members.csv", "--others", "members.csv", "--id", "person"],
        "80 of the people of --others are among those of --members, too",
        DataError,
    ),
    ([*MEMBERS, "members.csv", "--id", "name"], "no column 'name', which --id names", DataError),
    (
        [*MEMBERS, "bank=members-bank.csv", "--members", "shop=members-shop.csv"],
        "in different orders: say --id person",
        DataError,
    ),
    ([*MEMBERS, "wrong.csv"], "the files of shop", DataError),
    (["labels", "model.json", "--members", "members.csv"], "nobody is told anything", StudyError),
    (["labels", "model.json", "--members", "members.csv", "--known", "80"], "fewer than that", DataError),
    ([*RECOVER, "x"], "no party x", StudyError),
    ([*RECOVER, "bank", "--shape", "2by1"], "--shape", StudyError),
]


def test_mistakes_are_one_sentence(colonnade, there):
    wrong = (there / "members.csv").read_text(encoding="utf-8").replace('"no"', '"perhaps"', 1)
    (there / "wrong.csv").write_text(wrong, encoding="utf-8")
    for words, said, error in MISTAKES:
        text = colonnade("audit", *words, code=error.exit_code)
        assert text.startswith("colonnade: ")
        assert said in text
        assert not any(word in text for word in ("Traceback", "perhaps"))
