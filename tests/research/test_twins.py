"""Every broken twin of a game is caught, at a confidence of 99.9 %, and a twin that escapes is told."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from typer.testing import CliRunner

from colonnade.audit import Game, games, profile_audit, registry, subjects
from colonnade.audit.mechanisms import OpenedNumber
from colonnade.privacy import Observer, Trust
from colonnade.testing import seeded
from research.__main__ import app
from research.twins import registry as twins_registry
from research.twins.broken import in_event, in_sampler
from research.twins.registry import TwinVerdict, all_twins, judge_twin, register_twin, twins
from tests.support.errors import refused
from tests.support.pages import Page

SAMPLES, FEWER = 100_000, 40_000
NAMES = [row.name for row in subjects()]
TWINS = all_twins()
FEW = ("--samples", "20000", "--seed", "1")
games_of = cache(games)


@cache
def drawn(sampler, samples):
    """What a sampler sees of both tables; a twin that is broken in its claim alone sees the same as its game."""
    game = Game("", Observer.analyst(), "", (), Trust(("a", "b"), (), 0), sampler)
    stream = seeded(1)
    return tuple(game.sample(neighbour, samples, stream) for neighbour in (0, 1))


def played(game, broken, samples):
    return TwinVerdict(game, profile_audit(game.claim, *drawn(game.sampler, samples)), game.epsilon(), broken)


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: f"{twin.subject}-{twin.role}-{twin.broken}")
def test_broken_twins_are_caught(twin):
    real = next(game for game in games_of(twin.subject) if (game.role, game.part) == (twin.role, twin.part))
    made = twin.make(real)
    assert "caught" in (played(made, twin.broken, samples).word for samples in (FEWER, SAMPLES))


def test_every_mechanism_has_a_twin_and_every_twin_a_game():
    assert {twin.subject for twin in TWINS} == set(NAMES)
    for name in NAMES:
        declared = [twin.broken for twin in TWINS if twin.subject == name]
        assert [broken for broken, _ in twins(name)] == declared


def test_a_twin_is_a_row_after_that_of_its_game_and_others_are_refused(monkeypatch):
    all_twins()
    monkeypatch.setattr(twins_registry, "_TWINS", [])
    silent = in_sampler(OpenedNumber, lambda sampler: replace(sampler, shares=()))
    register_twin("skellam", "party", "no noise", silent)
    ((broken, game),) = twins("skellam")
    assert (broken, game.name) == ("no noise", "skellam/bank")
    assert judge_twin(game, 1000, 1, broken).good
    assert twins("pca") == ()
    of_events = in_event(type(games_of("grid")[0].events[0]), lambda event: event)
    for error, code, call, *words in (
        (ValueError, "VA004", register_twin, "nothing", "analyst", "no noise", silent),
        (ValueError, "VA005", register_twin, "skellam", "party", "no noise", silent),
        (TypeError, "VA255", silent, games_of("pca")[0]),
        (TypeError, "VA256", of_events, games_of("pca")[0]),
    ):
        refused(error, code, call, *words)


# --- ``python -m research twins``


def typed(*words: object) -> tuple[int, str]:
    found = CliRunner().invoke(app, ["twins", *map(str, words)])
    return found.exit_code, found.output


def test_twins_of_a_mechanism_are_caught_and_drawn(tmp_path: Path) -> None:
    status, text = typed("randomised-response", *FEW, "--out", tmp_path)
    assert (status, text.count("caught")) == (0, 1)
    page = (tmp_path / "twins.html").read_text(encoding="utf-8")
    assert len(Page(page).all("svg")) == 1
    assert "true labels" in page
    facts = json.loads((tmp_path / "twins.json").read_text(encoding="utf-8"))
    assert [(game["verdict"], game["broken"]) for game in facts["games"]] == [("caught", "true labels")]


def test_subjects_without_a_twin_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(registry, "_SUBJECTS", dict(registry._SUBJECTS))
    registry.register("lonely", "has no twin", lambda: None)(lambda task: games("skellam"))
    status, text = typed("lonely", *FEW, "--out", tmp_path)
    assert (status, "no twins are declared for lonely" in text) == (0, True)
    assert json.loads((tmp_path / "twins.json").read_text(encoding="utf-8"))["without_twins"] == ["lonely"]


def test_a_twin_that_escapes_ends_with_status_one(tmp_path: Path) -> None:
    status, text = typed("skellam", "--samples", "1000", "--seed", "1", "--out", tmp_path)
    assert status == 1
    assert "ESCAPED" in text
    assert "more --samples" in text
    page = (tmp_path / "twins.html").read_text(encoding="utf-8")
    assert "skellam/analyst: half the variance of the noise" in page.partition("</header>")[0]
