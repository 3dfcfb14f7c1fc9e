"""Can columns be recovered from what is seen?"""

from __future__ import annotations

import sys

import numpy as np
import pytest

from colonnade.audit.attacks import Views, invert
from colonnade.audit.attacks.inversion import recognised
from colonnade.errors import DataError, StudyError
from colonnade.report.attacks import render_attack
from tests.support.errors import raises
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
    with raises(StudyError, "ST329"):
        invert(views(0.05), "mlp")


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
    with raises(DataError, "DA001"):
        Views(some.auxiliary_seen, some.auxiliary, some.seen[:, 1:], some.truth)
    with raises(DataError, "DA002"):
        Views(some.auxiliary_seen[1:], some.auxiliary, some.seen, some.truth)
    with raises(DataError, "DA003"):
        Views(some.auxiliary_seen[:5], some.auxiliary[:5], some.seen, some.truth)
    with raises(DataError, "DA004"):
        Views(some.auxiliary_seen * np.inf, some.auxiliary, some.seen, some.truth)
    with raises(DataError, "DA016", "9"):
        invert(some, "ridge", shape=(9, 9))
    with raises(StudyError, "ST002"):
        invert(some, "cnn")
    with raises(StudyError, "ST001"):
        invert(some, "magic")
