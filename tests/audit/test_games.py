"""Every correct game passes, at a confidence of 99.9 %; those that are broken on purpose are in tests/research."""

from __future__ import annotations

import json
import shutil
import warnings
from dataclasses import replace
from fractions import Fraction
from functools import cache, cached_property
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from colonnade.audit import MOST_SAMPLES, Game, games, profile_audit, registry, subjects
from colonnade.audit.registry import GameVerdict, judge
from colonnade.errors import StorageError, StudyError
from colonnade.kinds import PCA
from colonnade.kinds.pca.audit import pca_games
from colonnade.models import Roster
from colonnade.privacy import DiscreteLaplaceRelease, Observer, accountant, parse_budgets, views
from colonnade.privacy.noise_laws import law_of_event
from colonnade.protocols.moments import programs, programs as moments, task as tasks
from colonnade.tables import Schema, number
from tests.support.errors import refused
from tests.support.pages import Page

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from colonnade.testing import seeded

SAMPLES, FEWER = 100_000, 40_000
NAMES = [row.name for row in subjects()]
games_of = cache(games)


@pytest.fixture(autouse=True, scope="module")
def _all_games():
    """Made before any test changes what they call, and not where these tests are only collected."""
    for name in NAMES:
        games_of(name)


@cache
def drawn(sampler, samples):
    """What a sampler sees of both tables."""
    game = Game("", Observer.analyst(), "", (), plan(2).trust, sampler)
    stream = seeded(1)
    return tuple(game.sample(neighbour, samples, stream) for neighbour in (0, 1))


def played(game, samples=SAMPLES):
    return GameVerdict(game, profile_audit(game.claim, *drawn(game.sampler, samples)), game.epsilon())


def plan(owners, threshold=None, columns=2, **parameters):
    schema = Schema({f"c{k}": number(-1, 1) for k in range(columns)}, clip=1.0)
    return PCA(2, **{"epsilon": {"analyst": 1.0}, **parameters}).plan(
        Roster.of({f"p{k}": schema for k in range(owners)}, threshold=threshold)
    )


@pytest.mark.parametrize("name", NAMES)
def test_correct_games_hold(name):
    for game in games_of(name):
        verdict = played(game, samples=FEWER)
        assert (verdict.good, verdict.word) == (True, "holds"), (game.name, verdict.result.margin)
        assert verdict.result.epsilon_lower_bound <= verdict.claimed


def test_a_name_is_registered_once_and_unknown_names_are_refused():
    refused(ValueError, "VA003", registry.register("pca", "again", lambda: None), lambda task: ())
    refused(StudyError, "ST015", games, "nothing")


def test_noise_below_the_reach_is_seen():
    """What the reach promises: with a tenth less noise than that share, the claim is refuted."""
    for subject, role in (("skellam", "analyst"), ("discrete-laplace", "party")):
        game = next(game for game in games_of(subject) if game.role == role)
        part, sampler = Fraction(0.9 * played(game).result.reach).limit_denominator(100), game.sampler
        (event,) = game.events
        if isinstance(event, DiscreteLaplaceRelease):
            law = law_of_event(event.kind).share_sampler(replace(event, scale=part * event.scale))
            quieter = replace(sampler, law=law)
        else:
            quieter = replace(sampler, shares=tuple((owner, part**2 * size) for owner, size in sampler.shares))
        assert played(replace(game, sampler=quieter)).result.caught


REAL_NOISE = moments.sample_entry_noise
WRONG = {
    "half the variance": lambda task, copies, stream, *_: REAL_NOISE(
        replace(task, noise=task.noise // 2), copies, stream
    ),
    "none": lambda task, copies, stream, *_: np.zeros(copies.shape, dtype=np.int64),
    "once above the diagonal": lambda task, copies, stream, *_: REAL_NOISE(task, np.ones_like(copies), stream),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_noise_in_the_protocol_itself_is_seen(wrong, monkeypatch):
    """Nothing of the audit is changed: only the function by which the owners of a study draw their noise."""
    monkeypatch.setattr(moments, "sample_entry_noise", WRONG[wrong])
    share = moments.sample_noise_share(games_of("pca")[0].sampler.task, seeded(1))
    assert wrong != "none" or not share.any()
    for game in (game for game in games_of("pca") if game.role in ("analyst", "party")):
        assert judge(game, 50_000, seed=2).word == "REFUTED"


def test_an_event_with_more_noise_than_the_task_draws_is_seen(monkeypatch):
    real = tasks.Moments.events.func
    louder = cached_property(
        lambda task: tuple(replace(e, shares=tuple((o, 2 * s) for o, s in e.shares)) for e in real(task))
    )
    louder.__set_name__(tasks.Moments, "events")
    task = games("pca")[0].sampler.task
    monkeypatch.setattr(tasks.Moments, "events", louder)
    for game in pca_games(replace(task)):
        assert judge(game, 100_000, seed=2).word == "REFUTED"


@pytest.mark.parametrize("name", NAMES)
def test_a_claim_follows_from_the_events(name):
    epsilons, found = np.array([0.0, 0.5, 2.0]), games_of(name)
    assert len({game.name for game in found}) == len(found)
    for game in found:
        seen = views(game.events, game.observer, game.trust)
        assert game.claim(epsilons).tolist() == accountant.profile(seen, epsilons).tolist()
        assert game.epsilon() == accountant.epsilon(seen, 1e-5).epsilon < 20
    if name in ("pca", "skellam", "discrete-gaussian"):
        assert {game.role for game in found} == {"analyst", "coordinator", "party", "coalition"}


def test_the_attack_on_a_pure_mechanism_comes_close_to_the_claim():
    """Knowing its own share a party is left with exactly one Laplace variable: inflated shares are just enough."""
    (game,) = [game for game in games_of("discrete-laplace") if game.role == "party"]
    verdict = played(game)
    assert 0.95 < verdict.result.epsilon_lower_bound <= verdict.claimed < 1.01


def test_pca_plays_with_the_integers_of_the_protocol():
    game = next(game for game in games_of("pca") if game.role == "party")
    task, own = game.sampler.task, game.sampler.task.span(*game.observer.names)
    upper = np.triu_indices(task.width)
    twice = np.where(upper[0] == upper[1], 1, 2)
    first, second = (game.sampler.rows(neighbour, 50, seeded(5)) for neighbour in (0, 1))
    for joint in (first, second):
        tables = {owner: joint[:, task.span(owner)] for owner in task.owners}
        assert np.all(joint[:, -1] == task.constant)
        alone = [
            programs.reference({owner: held[k : k + 1] for owner, held in tables.items()}, task) for k in range(50)
        ]
        assert np.array_equal(np.array(alone), joint[:, upper[0]] * joint[:, upper[1]] * twice)
    assert np.array_equal(first[:, own], second[:, own])
    assert not np.array_equal(first, second)


@pytest.mark.parametrize(("owners", "role"), [(3, "analyst"), (12, "party")])
def test_pca_sees_as_much_noise_as_its_event_says(role, owners):
    """The weighed sum of entries has the variance of the event's shares that the observer does not know."""
    game = next(game for game in pca_games(plan(owners, columns=1)) if game.role == role)
    sampler, unknown = game.sampler, [share for share in game.events[0].shares if share[0] not in game.observer.names]
    assert sorted(sampler.noisy) == sorted(owner for owner, _ in unknown), "of many owners all the noise is kept"
    copies = [1 if i == j else 2 for i, j in sampler.moved]
    weighed = sum(often * sampler.moves[spot] ** 2 for often, spot in zip(copies, sampler.moved, strict=True))
    rounding = np.var(replace(sampler, noisy=())(1, 8000, seeded(3)))
    expected = 2 * float(sum(size for _, size in unknown)) * weighed
    assert np.var(sampler(1, 8000, seeded(4))) - rounding == pytest.approx(expected, rel=0.05)


def test_pca_games_use_nearly_the_whole_sensitivity():
    """Otherwise they would pass whatever the noise: the move is within a few percent of the event's bound."""
    for game in games_of("pca"):
        sampler, seen = game.sampler, game.seen[0]
        after = sampler.rows(1, 1, seeded(1))
        before = 0 * after if sampler.people[0] is None else sampler.rows(0, 1, seeded(1))
        change = after.T @ after - before.T @ before
        assert 0.9 * seen.l2_squared < float(np.sum(change.astype(float) ** 2)) <= seen.l2_squared
        assert sampler.task.event.dimension == change.size


def test_pca_games_of_a_study_with_a_larger_committee():
    found = {game.observer.label: game for game in pca_games(plan(5, threshold=2))}
    assert {"p0+p1", "coordinator+p0+p1"} <= set(found)
    pair = found["p0+p1"]
    assert set(pair.sampler.noisy) == {"p2", "p3", "p4"}
    assert judge(pair, 50_000, seed=3).good
    assert judge(replace(pair, observer=Observer.analyst()), 100_000, seed=3).result.caught


@pytest.mark.parametrize(
    "changes",
    [{"label_owner": "bank", "classes": 3}, {"sampling": "disjoint", "rounds": 8, "expansion": 3, "gamma": 64}],
)
def test_iterative_studies_of_every_kind_have_games_for_parties(changes):
    (row,) = [row for row in subjects() if row.name == "sqm"]
    draft = replace(row.plan(), **changes)
    task = draft.calibrate(parse_budgets({"analyst": 1.0}, 1e-5, draft.trust))
    assert registry.subject(task) == "sqm"
    played_by = {game.observer.label: game for game in games("sqm", task)}
    assert {"analyst", "coordinator", task.label_owner} < set(played_by)
    assert len(played_by) == 6
    for game in played_by.values():
        assert game.play(4000, seeded(2)).margin <= 0


def test_a_game_depends_on_its_seed_alone():
    game = games_of("skellam")[0]
    assert judge(game, 2000, seed=7) == judge(game, 2000, seed=7)
    assert judge(game, 2000, seed=7).result != judge(game, 2000, seed=8).result


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_correct_games_hold_for_many_seeds(name):
    """No more alarms than chance allows; the union bound makes them far rarer than one in a thousand."""
    found = games_of(name)
    runs = 40
    alarms = sum(not judge(game, 100_000, seed=1000 + run).good for game in found for run in range(runs))
    assert alarms <= binom.ppf(0.999, runs * len(found), 0.001)


# --- ``colonnade audit``: what it prints, what it leaves behind, and how it ends


EXAMPLE = Path(__file__).parents[2] / "examples" / "three-organisations"
FEW = ("--samples", "20000", "--seed", "1")


@pytest.fixture(autouse=True)
def _somewhere_else(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


def test_without_a_name_it_lists_the_games(colonnade):
    found = [(entry["name"], entry["summary"]) for entry in colonnade("audit", "--json")["games"]]
    assert found == [(row.name, row.summary) for row in subjects()]


def test_a_mechanism_that_holds_leaves_a_page_and_its_figures(colonnade, tmp_path):
    text = colonnade("audit", "randomised-response", *FEW, "--out", "found")
    assert "randomised-response/shop " in text
    assert text.count("holds") == 2
    page = (tmp_path / "found" / "audit.html").read_text(encoding="utf-8")
    assert len(Page(page).all("svg")) == 2
    assert "no attacker showed more than was promised" in page
    facts = json.loads((tmp_path / "found" / "audit.json").read_text(encoding="utf-8"))
    assert [game["verdict"] for game in facts["games"]] == ["holds", "holds"]
    assert all(len(game["lower"]) == len(game["claimed"]) == 121 for game in facts["games"])


def test_a_refuted_claim_ends_with_status_one(colonnade, monkeypatch, tmp_path):
    monkeypatch.setattr(registry, "_SUBJECTS", dict(registry._SUBJECTS))

    @registry.register("liar", "claims half of what it costs", lambda: None)
    def build(task):
        for game in games("skellam"):
            louder = replace(game.events[0], shares=tuple((o, 2 * size) for o, size in game.events[0].shares))
            yield replace(game, subject="liar", events=(louder,))

    text = colonnade("audit", "liar", "--samples", "100000", "--seed", "1", code=1)
    assert text.count("REFUTED") == 4
    facts = json.loads((tmp_path / "runs/audit/audit.json").read_text(encoding="utf-8"))
    assert [(game["good"], game["reach"] > 1) for game in facts["games"]] == [(False, True)] * 4
    page = (tmp_path / "runs/audit/audit.html").read_text(encoding="utf-8")
    assert "4 promises are refuted: liar/analyst; liar/coordinator;" in page


def test_a_reach_of_a_hundred_percent_is_only_for_a_refuted_promise():
    verdict = judge(games("randomised-response")[0], 1000, seed=1)
    for claimed, lower, text in ((0.3, 0.2999, "99%"), (0.3, 0.3001, "101%"), (0.3, 0.0, "0%"), (0.0, 0.1, ">999%")):
        result = replace(verdict.result, margin=lower - claimed, epsilons=(2.0,), claimed=(claimed,), lower=(lower,))
        assert replace(verdict, result=result).reach == text


def test_names_of_rows_files_and_studies_that_give_no_games(colonnade, monkeypatch, tmp_path):
    monkeypatch.setattr(registry, "_SUBJECTS", dict(registry._SUBJECTS))
    registry.register("empty", "nothing at all", lambda: None)(lambda task: ())
    for name in ("randomised-response", "other"):
        (tmp_path / name).write_text("not a study", encoding="utf-8")
    assert colonnade("audit", "randomised-response", *FEW).count("holds") == 2, "a file does not hide its game"
    for name, *said in (
        ("empty", "empty is registered but gives no games"),
        ("other", "there are no games named 'other'", "pca"),
        ("nothing", "there are no games named 'nothing'", "pca"),
        ("./other", "not valid TOML"),
        ("none.toml", "none.toml"),
    ):
        text = colonnade("audit", name, code=StudyError.exit_code)
        assert all(words in text for words in said), text
        assert "Traceback" not in text
    assert str(MOST_SAMPLES) in colonnade("audit", "skellam", "--samples", MOST_SAMPLES + 1, code=2)


@pytest.mark.parametrize("out", ["taken", "taken/below", "/proc/nowhere", "held", "page"])
def test_a_place_that_cannot_be_written_is_refused_before_anything_is_played(colonnade, out, tmp_path, monkeypatch):
    (tmp_path / "taken").touch()
    for folder in ("held/audit.json", "page/audit.html"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.setattr(registry.Game, "play", lambda *_, **__: pytest.fail("it was played"))
    text = colonnade("audit", "skellam", "--out", out, code=StorageError.exit_code)
    assert out.partition("/below")[0] in text
    assert (text.count("\n"), "Traceback" in text) == (1, False)


def test_a_study_is_attacked_with_its_own_parameters(colonnade, tmp_path):
    shutil.copytree(EXAMPLE, tmp_path / "s", ignore=shutil.ignore_patterns("certs", "*.key", "*.crt", "*.sqlite*"))
    facts = colonnade("audit", tmp_path / "s" / "STUDY.toml", *FEW, "--json")
    found = {game["observer"]: game for game in facts["games"]}
    assert set(found) == {"analyst", "coordinator", "bank", "bank+coordinator"}
    assert found["analyst"]["claimed_epsilon"] == pytest.approx(0.9295, abs=1e-3), "the budgets of parties decide"
    assert found["bank"]["claimed_epsilon"] <= 2.0
    assert (facts["seed"], all(game["good"] for game in found.values())) == (1, True)
