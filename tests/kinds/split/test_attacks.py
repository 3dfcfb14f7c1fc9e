"""Attacks on split networks: what each way to a head shows, and what is proven about it."""

from __future__ import annotations

from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from colonnade import SplitClassifier, category
from colonnade.audit.attacks import (
    Shadows,
    infer_labels,
    infer_membership,
    invert,
    nearness_of,
    promised,
    returned_by,
    seen_of,
    shadows_of,
)
from colonnade.audit.attacks.views import views_of
from colonnade.errors import StudyError
from colonnade.models.federation import Roster
from colonnade.models.newcomers import same_people
from colonnade.privacy import Trust
from colonnade.report.attacks import render_attack
from colonnade.testing.seeded import seeded
from tests.support.errors import raises, refused
from tests.support.federations import numbers
from tests.support.pages import Page

COLUMNS = {"bank": [f"a{k}" for k in range(6)], "shop": [f"b{k}" for k in range(6)]}
LINEAR = {party: {"kind": "linear", "width": 5} for party in COLUMNS}
SCHEMAS = {
    "bank": numbers(COLUMNS["bank"], -3, 3),
    "shop": numbers(COLUMNS["shop"], -3, 3, kind=category(["x", "y", "z"])),
}


def cells(rows, seed=0):
    """Three kinds of people, whose columns differ a little."""
    draw = np.random.default_rng(seed)
    kind = draw.integers(0, 3, rows)
    middles = np.random.default_rng(99).normal(size=(3, 12))
    values = np.clip(draw.normal(size=(rows, 12)) + middles[kind], -3, 3)
    names = [name for each in COLUMNS.values() for name in each]
    whole = pa.table({name: values[:, place] for place, name in enumerate(names)})
    return whole.append_column("kind", pa.array(np.array(["x", "y", "z"])[kind]))


def people(rows, seed=0):
    given = cells(rows, seed)
    return same_people(dict.fromkeys(COLUMNS, given), SCHEMAS, None, "a test", same_order=True)


@cache
def fitted(head, rows=150, **more):
    """A model that attacks only read."""
    model = SplitClassifier(label="shop.kind", head=head, encoders=LINEAR, **more)
    seats = Roster.of(SCHEMAS) if head == "committee" else Roster(SCHEMAS, Trust(tuple(COLUMNS), (), 0))
    return model.simulate(people(rows), seats, seeded(20240))


def unprotected(epochs=4):
    return fitted("published", unprotected=True, epochs=epochs, batches=5)


def inverted(model, **how):
    """What a ridge finds about the bank's columns of eighty people, from what is seen of them."""
    seen = seen_of(model, "bank", people(240, seed=1), **how)
    return seen, invert(seen.split(np.arange(240) < 80), "ridge")


def test_unprotected_embeddings_are_inverted_and_noised_ones_and_sums_are_not():
    _, bare = inverted(unprotected())
    assert min(bare.found.explained, bare.found.recognised) > 0.5
    assert "unprotected embeddings of the person" in bare.needed
    needed = {"embeddings": "noised embeddings of the person", "committee": "the embeddings of everybody else"}
    for head, said in needed.items():
        _, found = inverted(fitted(head, epsilon=1.0))
        assert found.found.explained < 0.1
        assert found.found.recognised < 0.15
        assert said in found.needed


def test_exact_scores_tell_more_than_the_sums_they_follow_from():
    model = fitted("committee", epsilon=5.0)
    seen, found = inverted(model, scores=True)
    assert (seen.what, seen.columns.shape) == ("exact scores", (240, 6))
    assert seen.numbers == pytest.approx(model.scores(people(240, seed=1)))
    assert found.found.explained > 0.05


def test_embeddings_that_are_told_in_every_epoch_lose_their_noise():
    model = fitted("published", per_release=2.0, epochs=9, batches=5)
    everyone, told = people(200), fitted("embeddings", epsilon=1.0)
    exact = model.embedded("bank", everyone["bank"])
    once, often = (seen_of(model, "bank", everyone, releases=times) for times in (1, 9))
    assert np.std(often.numbers - exact) == pytest.approx(np.std(once.numbers - exact) / 3)
    assert "averaged over 9 releases" in often.what
    refused(StudyError, "ST007", "9", seen_of, model, "bank", everyone, releases=10)
    refused(StudyError, "ST007", "1", seen_of, told, "bank", everyone, releases=2)
    refused(StudyError, "ST010", "shop", seen_of, told, "shop", everyone)


def test_returned_slopes_give_every_label_away_and_rounds_those_that_were_told(stream):
    returned = returned_by(unprotected(), people(300, seed=2), 30, stream=stream)
    assert returned.slopes.shape[1:] == (300, 5)
    found = infer_labels(returned)
    assert found.base_rate < 0.5 < 0.9 < found.accuracy
    assert found.most is None
    model = fitted("embeddings", epsilon=8.0, training="rounds", epochs=2, batches=3)
    returned = returned_by(model, people(150, seed=2), 30, stream=stream)
    assert (returned.slopes.shape, returned.epsilon) == ((2, 150, 5), None)
    found = infer_labels(returned)
    assert found.accuracy > 0.6
    assert "the slopes of 2 rounds" in found.needed
    for head in ("committee", "embeddings"):  # where no label is told there is nothing to attack
        with raises(StudyError, "ST005"):
            returned_by(fitted(head, epsilon=1.0), people(60), 10, stream=stream)


def test_randomised_labels_are_told_as_the_bound_says(stream):
    model = fitted("embeddings", epsilon=8.0, training="labels", epochs=1, label_epsilon=1.0)
    found = infer_labels(returned_by(model, people(2000, seed=2), 100, stream=stream))
    assert found.base_rate < found.accuracy < found.most + 0.06  # five deviations of 1,900 guesses
    assert found.needed.startswith("the attacker needed labels as they were told to it, and the labels of 100 people")
    assert "By groups of told labels" in Page(render_attack("runs", found)).words


def test_only_what_was_published_is_promised_and_shadows_have_encoders_that_did_not_learn(stream):
    model, scratch, pool = fitted("committee", epsilon=1.0), unprotected(epochs=1), people(300)
    promise = promised(model)
    assert 0.5 < promise.accuracy < 0.6
    assert promised(fitted("embeddings", epsilon=1.0)) is None  # the head is its party's own
    assert promised(scratch) is None
    half = {party: table.take_rows(np.arange(150)) for party, table in pool.items()}
    again = views_of(model).fresh(model).simulate(half, Roster.of(SCHEMAS), stream)
    for party in COLUMNS:
        assert (again.embedded(party, pool[party]) == model.embedded(party, pool[party])).all()
    assert views_of(scratch).fresh(scratch).encoders == LINEAR
    found = infer_membership(shadows_of(model, pool, 150, 8, seed=1, stream=stream), promise=promise)
    assert found.alike.accuracy_interval[0] < found.promise.accuracy


@pytest.mark.slow
def test_unprotected_embeddings_give_members_away_without_any_scores(stream):
    pool, size = people(48, seed=3), 24
    encoders = {party: {"kind": "linear", "width": 8} for party in COLUMNS}
    how = {"head": "published", "unprotected": True, "epochs": 150, "batches": 4}
    members = {party: table.take_rows(np.arange(size)) for party, table in pool.items()}
    model = SplitClassifier(label="shop.kind", encoders=encoders, **how)
    model.simulate(members, Roster.of(SCHEMAS), stream)
    shadows = shadows_of(model, pool, size, 16, seed=1, see=nearness_of("bank"), stream=stream)
    assert infer_membership(shadows).alike.auc_interval[0] > 0.55


def test_embeddings_alone_are_seen_of_those_who_tell_them():
    pool = people(60)
    seen = nearness_of("bank")(fitted("published", 60, unprotected=True, epochs=1, batches=5), pool)
    assert seen.shape == (60,)
    assert np.mean(seen > 0) > 0.4  # three classes
    inside = np.tile(np.arange(60) % 2 == np.arange(2)[:, None], (4, 1))
    found = infer_membership(Shadows(np.tile(seen, (8, 1)), inside), sees="what bank tells about each person")
    assert found.needed.startswith("the attacker needed what bank tells about each person")
    with raises(StudyError, "ST009"):
        nearness_of("bank")(fitted("committee", epsilon=1.0), pool)


def test_the_commands_take_kept_encoders(colonnade, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = unprotected()
    model.save("model.json")
    kept = [word for party in model.holders for word in ("--kept", str(model.save_kept(f"{party}.npz", party)))]
    for name, seed in (("members", 0), ("others", 1)):
        pyarrow.csv.write_csv(cells(150, seed), f"{name}.csv")
    given = ("--party", "bank", "--people", "others.csv", "--auxiliary", "members.csv", "--decoder", "ridge")
    facts = colonnade("audit", "inversion", "model.json", *given, *kept, "--json")
    assert facts["seen"] == "unprotected embeddings"
    assert facts["found"]["explained"] > 0.5
    facts = colonnade("audit", "labels", "model.json", "--members", "members.csv", *kept, "--json")
    assert facts["accuracy"] > 0.9
    given_both = ("--members", "members.csv", "--others", "others.csv", "--seen", "bank", "--shadows", 8)
    facts = colonnade("audit", "membership", "model.json", *given_both, *kept, "--json")
    assert facts["promise"] is None
    assert "what bank tells" in facts["needed"]
    said = colonnade("audit", "membership", "model.json", *given_both, *kept)
    assert "No bound from the privacy statement stands beside this attacker" in said
    text = colonnade("audit", "inversion", "model.json", *given, code=StudyError.exit_code)
    assert "the attack needs what bank kept of the model" in text
