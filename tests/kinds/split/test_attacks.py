"""Attacks on split networks: what each way to a head shows, and what is proven about it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from colonnade import SplitClassifier
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
from colonnade.kinds.split.attack_slopes import Transcript
from colonnade.models.federation import Roster
from colonnade.models.newcomers import same_people
from colonnade.privacy import Trust
from colonnade.report.attacks import render_attack
from colonnade.tables import Schema
from tests.support.errors import raises
from tests.support.pages import Page

COLUMNS = {"bank": [f"a{k}" for k in range(6)], "shop": [f"b{k}" for k in range(6)]}
LABEL = '[columns.kind]\ntype = "category"\nvalues = ["x", "y", "z"]\n'
LINEAR = {party: {"kind": "linear", "width": 5} for party in COLUMNS}


def schemas():
    number = '[columns.{}]\ntype = "number"\nlow = -3\nhigh = 3\n'
    return {
        party: Schema.from_toml("".join(number.format(name) for name in names) + (LABEL if party == "shop" else ""))
        for party, names in COLUMNS.items()
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
    return same_people(dict.fromkeys(COLUMNS, given), schemas(), None, "a test", same_order=True)


def fitted(stream, head, rows=150, **more):
    model = SplitClassifier(label="shop.kind", head=head, encoders=LINEAR, **more)
    seats = Roster.of(schemas()) if head == "committee" else Roster(schemas(), Trust(tuple(COLUMNS), (), 0))
    return model.simulate(people(rows), seats, stream)


def unprotected(stream, rows=150, epochs=4):
    return fitted(stream, "published", rows, unprotected=True, epochs=epochs, batches=5)


def test_unprotected_embeddings_are_inverted_and_noised_ones_and_sums_are_not(stream):
    everyone = people(240, seed=1)
    attacked = np.arange(240) < 80
    found = {}
    for name, model in {
        "unprotected": unprotected(stream),
        "embeddings": fitted(stream, "embeddings", epsilon=1.0),
        "committee": fitted(stream, "committee", epsilon=1.0),
    }.items():
        found[name] = invert(seen_of(model, "bank", everyone).split(attacked), "ridge")
    assert found["unprotected"].found.explained > 0.5
    assert found["unprotected"].found.recognised > 0.5
    for name in ("embeddings", "committee"):
        assert found[name].found.explained < 0.1
        assert found[name].found.recognised < 0.15
    assert "unprotected embeddings of the person" in found["unprotected"].needed
    assert "noised embeddings of the person" in found["embeddings"].needed
    assert "the embeddings of everybody else" in found["committee"].needed


def test_exact_scores_tell_more_than_the_sums_they_follow_from(stream):
    model, everyone = fitted(stream, "committee", epsilon=5.0), people(240, seed=1)
    seen = seen_of(model, "bank", everyone, scores=True)
    assert seen.what == "exact scores"
    assert seen.numbers == pytest.approx(model.scores(everyone))
    assert seen.columns.shape == (240, 6)
    attacked = np.arange(240) < 80
    assert invert(seen.split(attacked), "ridge").found.explained > 0.05


def test_embeddings_that_are_told_in_every_epoch_lose_their_noise(stream):
    model = fitted(stream, "published", per_release=2.0, epochs=9, batches=5)
    everyone = people(200)
    exact = model.embedded("bank", everyone["bank"])
    once, often = (seen_of(model, "bank", everyone, releases=times) for times in (1, 9))
    assert np.std(often.numbers - exact) == pytest.approx(np.std(once.numbers - exact) / 3)
    assert "averaged over 9 releases" in often.what
    with raises(StudyError, "ST007", "9"):
        seen_of(model, "bank", everyone, releases=10)
    with raises(StudyError, "ST007", "1"):
        seen_of(fitted(stream, "embeddings", epsilon=1.0), "bank", everyone, releases=2)


def test_the_party_with_the_label_tells_nobody_its_embeddings(stream):
    model = fitted(stream, "embeddings", epsilon=1.0)
    with raises(StudyError, "ST010", "shop"):
        seen_of(model, "shop", people(40))


def test_returned_slopes_give_every_label_away(stream):
    returned = returned_by(unprotected(stream), people(300, seed=2), 30, stream=stream)
    assert returned.slopes.shape[1:] == (300, 5)
    found = infer_labels(returned)
    assert found.accuracy > 0.9
    assert found.base_rate < 0.5
    assert found.most is None


def test_randomised_labels_are_told_as_the_bound_says(stream):
    model = fitted(stream, "embeddings", epsilon=8.0, training="labels", epochs=1, label_epsilon=1.0)
    found = infer_labels(returned_by(model, people(2000, seed=2), 100, stream=stream))
    assert found.most is not None
    assert found.base_rate < found.accuracy < found.most + 0.06  # five deviations of 1,900 guesses
    assert found.needed.startswith("the attacker needed labels as they were told to it, and the labels of 100 people")
    assert "By groups of told labels" in Page(render_attack("runs", found)).words


def test_rounds_return_slopes_of_the_labels_that_were_told(stream):
    model = fitted(stream, "embeddings", epsilon=8.0, training="rounds", epochs=2, batches=3)
    returned = returned_by(model, people(150, seed=2), 30, stream=stream)
    assert returned.slopes.shape == (2, 150, 5)
    assert returned.epsilon is None
    found = infer_labels(returned)
    assert found.accuracy > 0.6
    assert "the slopes of 2 rounds" in found.needed


@pytest.mark.parametrize("head", ["committee", "embeddings"])
def test_where_no_label_is_told_there_is_nothing_to_attack(stream, head):
    with raises(StudyError, "ST005"):
        returned_by(fitted(stream, head, epsilon=1.0), people(60), 10, stream=stream)


def test_only_what_was_published_is_promised(stream):
    committee = fitted(stream, "committee", epsilon=1.0)
    promise = promised(committee)
    assert promise is not None
    assert 0.5 < promise.accuracy < 0.6
    assert promised(fitted(stream, "embeddings", epsilon=1.0)) is None  # the head is its party's own
    assert promised(unprotected(stream, epochs=1)) is None


def test_shadow_models_have_the_encoders_of_the_model_unless_these_learned(stream):
    model = fitted(stream, "committee", epsilon=1.0)
    pool = people(300)
    again = (
        views_of(model)
        .fresh(model)
        .simulate(
            {party: table.take_rows(np.arange(150)) for party, table in pool.items()}, Roster.of(schemas()), stream
        )
    )
    for party in COLUMNS:
        assert (again.embedded(party, pool[party]) == model.embedded(party, pool[party])).all()
    scratch = unprotected(stream, epochs=1)
    assert views_of(scratch).fresh(scratch).encoders == LINEAR
    found = infer_membership(shadows_of(model, pool, 150, 8, seed=1, stream=stream), promise=promised(model))
    assert found.promise is not None
    assert found.alike.accuracy_interval[0] < found.promise.accuracy


@pytest.mark.slow
def test_unprotected_embeddings_give_members_away_without_any_scores(stream):
    pool, size = people(48, seed=3), 24
    model = SplitClassifier(
        label="shop.kind",
        head="published",
        unprotected=True,
        encoders={party: {"kind": "linear", "width": 8} for party in COLUMNS},
        epochs=150,
        batches=4,
    ).simulate({party: table.take_rows(np.arange(size)) for party, table in pool.items()}, Roster.of(schemas()), stream)
    shadows = shadows_of(model, pool, size, 16, seed=1, see=nearness_of("bank"), stream=stream)
    assert infer_membership(shadows).alike.auc_interval[0] > 0.55


def test_embeddings_alone_are_seen_of_those_who_tell_them(stream):
    pool = people(60)
    seen = nearness_of("bank")(unprotected(stream, rows=60, epochs=1), pool)
    assert seen.shape == (60,)
    assert np.mean(seen > 0) > 0.4  # three classes
    inside = np.tile(np.arange(60) % 2 == np.arange(2)[:, None], (4, 1))
    found = infer_membership(Shadows(np.tile(seen, (8, 1)), inside), sees="what bank tells about each person")
    assert found.needed.startswith("the attacker needed what bank tells about each person")
    with raises(StudyError, "ST009"):
        nearness_of("bank")(fitted(stream, "committee", epsilon=1.0), pool)


def test_a_transcript_has_a_row_for_each_person_and_epoch():
    seen = Transcript(4)
    for epoch in (1.0, 2.0):
        for places in ([2, 0], [1, 3]):
            some = np.array(places)
            seen.note("bank", some, epoch * some[:, None], -epoch * some[:, None])
    assert seen.of("bank")[:, :, 0].tolist() == [[0, -1, -2, -3], [0, -2, -4, -6]]
    assert len(seen.embeddings["bank"]) == 2


def test_the_commands_take_kept_encoders(colonnade, stream, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = unprotected(stream)
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
