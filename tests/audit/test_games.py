"""Every correct game passes and every broken twin is caught, at a confidence of 99.9 %."""

from __future__ import annotations

import runpy
import warnings
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom

from colonnade.audit import games, registry, rows
from colonnade.audit.second_moments import pca_games
from colonnade.audit.verdict import judge
from colonnade.errors import StudyError
from colonnade.models import PCA, Roster
from colonnade.privacy import Observer, accountant
from colonnade.privacy.events import views
from colonnade.protocols.moments import noise_share, reference
from colonnade.tables import Schema, number

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from colonnade.testing import twins as twins_module
    from colonnade.testing.seeded import seeded
    from colonnade.testing.twins import TWINS, twins

SAMPLES = 200_000
NAMES = [row.name for row in rows()]


def plan(owners, threshold=None, columns=2, **parameters):
    schema = Schema({f"c{k}": number(-1, 1) for k in range(columns)}, clip=1.0)
    return PCA(2, **{"epsilon": {"analyst": 1.0}, **parameters}).plan(
        Roster.of({f"p{k}": schema for k in range(owners)}, threshold=threshold)
    )


@pytest.mark.parametrize("name", NAMES)
def test_correct_games_hold(name):
    for game in games(name):
        verdict = judge(game, SAMPLES, seed=1)
        assert verdict.good, (game.name, verdict.result.margin, verdict.result.epsilon)
        assert verdict.word == "holds"
        assert verdict.result.epsilon_lower_bound <= verdict.claimed


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: f"{twin.subject}-{twin.role}-{twin.broken}")
def test_broken_twins_are_caught(twin):
    found = {broken: game for broken, game in twins(twin.subject) if game.subject == twin.subject}
    verdict = judge(found[twin.broken], SAMPLES, seed=1, broken=twin.broken)
    assert verdict.good, (verdict.result.margin, verdict.result.epsilon)
    assert verdict.word == "caught"


def test_every_mechanism_has_a_twin_and_every_twin_a_game():
    assert {twin.subject for twin in TWINS} == set(NAMES)
    for name in NAMES:
        assert len(twins(name)) == sum(twin.subject == name for twin in TWINS)


def test_games_are_about_what_the_task_asks_for():
    roles = {name: {game.role for game in games(name)} for name in NAMES}
    everyone = {"analyst", "coordinator", "party", "coalition"}
    assert roles["pca"] == roles["skellam"] == roles["discrete-gaussian"] == everyone
    assert all(len({game.name for game in games(name)}) == len(games(name)) for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_claim_follows_from_the_events(name):
    epsilons = np.array([0.0, 0.5, 2.0])
    for game in games(name):
        seen = views(game.events, game.observer, game.trust)
        assert game.claim(epsilons).tolist() == accountant.profile(seen, epsilons).tolist()
        assert game.epsilon() == accountant.epsilon(seen, 1e-5).epsilon < 20


def test_the_attack_on_a_pure_mechanism_comes_close_to_the_claim():
    """Knowing its own share a party is left with exactly one Laplace variable: inflated shares are just enough."""
    (game,) = [game for game in games("discrete-laplace") if game.role == "party"]
    verdict = judge(game, SAMPLES, seed=2)
    assert 0.95 < verdict.result.epsilon_lower_bound <= verdict.claimed < 1.01


def test_pca_plays_with_the_integers_of_the_protocol():
    game = next(game for game in games("pca") if game.role == "party")
    task, sampler = game.sampler.task, game.sampler
    for neighbour in (0, 1):
        joint = sampler.rows(neighbour, 50, seeded(5))
        tables = {owner: joint[:, task.span(owner)] for owner in task.owners}
        assert np.all(joint[:, -1] == task.constant)
        alone = [reference({owner: held[k : k + 1] for owner, held in tables.items()}, task) for k in range(50)]
        upper = np.triu_indices(task.width)
        twice = np.where(upper[0] == upper[1], 1, 2)
        assert np.array_equal(np.array(alone), joint[:, upper[0]] * joint[:, upper[1]] * twice)
    first, second = (sampler.rows(neighbour, 1, seeded(5))[0] for neighbour in (0, 1))
    assert np.array_equal(first[task.span(*game.observer.names)], second[task.span(*game.observer.names)])
    assert not np.array_equal(first, second)


def test_pca_draws_the_noise_of_the_protocol():
    """The shares of the game have the variance of those that the owners draw."""
    task = games("pca")[0].sampler.task
    diagonal = np.cumsum([0, *range(task.width, 1, -1)])
    drawn = np.concatenate([noise_share(task, seeded(seed))[diagonal] for seed in range(400)])
    share = dict(games("pca")[0].sampler.shares)[task.owners[0]]
    assert np.var(drawn / float(2 * share) ** 0.5) == pytest.approx(1.0, abs=0.1)


def test_pca_games_use_nearly_the_whole_sensitivity():
    """Otherwise they would pass whatever the noise: the move is within a few percent of the event's bound."""
    for game in games("pca"):
        task, sampler = game.sampler.task, game.sampler
        empty = sampler.people[0] is None
        before = 0 * sampler.rows(1, 1, seeded(1)) if empty else sampler.rows(0, 1, seeded(1))
        after = sampler.rows(1, 1, seeded(1))
        change = after.T @ after - before.T @ before
        seen = game.seen[0]
        assert 0.9 * seen.l2_squared < float(np.sum(change.astype(float) ** 2)) <= seen.l2_squared
        assert task.event.dimension == change.size


def test_pca_games_of_a_study_with_a_larger_committee():
    task = plan(5, threshold=2)
    found = {game.observer.label: game for game in pca_games(task)}
    assert "p0+p1" in found
    assert "coordinator+p0+p1" in found
    pair = found["p0+p1"]
    assert {owner for owner, _ in pair.sampler.shares} == {"p2", "p3", "p4"}
    assert judge(pair, 50_000, seed=3).good
    assert judge(replace(pair, observer=Observer.analyst()), 100_000, seed=3).result.caught


def test_pca_games_of_many_owners_keep_all_the_noise():
    task = plan(30, columns=1)
    for game in pca_games(task):
        unknown = sum((size for owner, size in task.event.shares if owner not in game.observer.names), Fraction(0))
        assert sum(size for _, size in game.sampler.shares) == unknown
        assert len(game.sampler.shares) <= 8


def test_a_game_depends_on_its_seed_alone():
    game = games("skellam")[0]
    assert judge(game, 2000, seed=7) == judge(game, 2000, seed=7)
    assert judge(game, 2000, seed=7).result != judge(game, 2000, seed=8).result


def test_names_are_taken_once_and_unknown_ones_are_listed():
    with pytest.raises(ValueError, match="registered already"):
        registry.register("pca", "again", lambda: None)(lambda task: ())
    with pytest.raises(StudyError, match=r"choose from .*pca"):
        games("nothing")


def test_whoever_imports_the_twins_is_warned():
    with pytest.warns(UserWarning, match="broken on purpose"):
        runpy.run_path(twins_module.__file__)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_correct_games_hold_for_many_seeds(name):
    """No more alarms than chance allows; the union bound makes them far rarer than one in a thousand."""
    found = games(name)
    runs = 40
    alarms = sum(not judge(game, 100_000, seed=1000 + run).good for game in found for run in range(runs))
    assert alarms <= binom.ppf(0.999, runs * len(found), 0.001)
