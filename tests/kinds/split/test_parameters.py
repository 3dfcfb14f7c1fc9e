"""Parameters of split networks: which belong to which head, specifications of encoders, modules of a party's own."""

from __future__ import annotations

from typing import Any

import pytest

from colonnade import SplitClassifier, SplitRegressor
from colonnade.errors import StudyError
from colonnade.kinds.split import choice
from colonnade.kinds.split.adaptive.task import Adaptive
from colonnade.kinds.split.embeddings.task import Embeddings
from tests.kinds.split.people import federation, roster, tables
from tests.support.errors import raises

ROWS = 120
HEADS: dict[str, dict[str, Any]] = {
    "committee": {"epsilon": 8.0},
    "embeddings": {"epsilon": 8.0, "rows": ROWS},
    "published": {"per_release": 20.0, "rows": ROWS, "encoders": {"shop": {"kind": "linear"}}},
}
OTHER = {
    "solver": "ridge",
    "training": "labels",
    "epochs": 3,
    "batches": 2,
    "learning_rate": 0.5,
    "label_epsilon": 1.0,
    "per_release": 1.0,
    "unprotected": True,
    "rescale": False,
    "adjust": False,
    "head_module": object(),
    "constants": {"share": 0.5},
    "epsilon": 3.0,
}


def planned(head: str, **more: object) -> Any:
    return SplitClassifier(label="bank.default", head=head, **HEADS[head] | more).plan(roster("default"))  # type: ignore[arg-type]


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("name", OTHER)
def test_a_parameter_of_another_head_is_refused_by_its_name(name, head):
    if head in choice.BELONGS[name]:
        return
    with raises(StudyError, "ST231", name, head):
        planned(head, **{name: OTHER[name]})


def test_the_table_names_every_parameter_that_not_all_heads_have():
    common = {"label", "delta", "head", "encoders", "width", "rows", "rows_at_most", "threshold"}
    assert set(choice.BELONGS) == {*SplitClassifier.__dataclass_fields__} - common
    assert set(OTHER) == set(choice.BELONGS)


@pytest.mark.parametrize("name", ["epochs", "batches", "learning_rate"])
def test_what_is_about_training_is_refused_without_training(name):
    with raises(StudyError, "ST232", name):
        planned("embeddings", **{name: OTHER[name]})
    planned("embeddings", training="labels", label_epsilon=1.0, **{name: OTHER[name]})
    if name == "epochs":
        with raises(StudyError, "ST232", "epochs"):
            planned("committee", epochs=3)
        planned("committee", epochs=3, training="own", rows=ROWS, width=2)


def test_a_training_of_another_head_is_refused():
    with raises(StudyError, "ST233", "own", "committee"):
        planned("embeddings", training="own")
    with raises(StudyError, "ST233", "rounds", "embeddings"):
        planned("committee", training="rounds")


# --- constants


def test_constants_reach_the_tasks():
    given = {"stage": True, "first_share": 0.25, "share": 0.5, "contrast": 0.1, "margin": 1.5}
    task = planned("embeddings", training="labels", label_epsilon=1.0, constants=given)
    assert isinstance(task, Embeddings)
    assert {name: getattr(task, name) for name in given} == given
    assert [event.name for event in task.events if "first" in event.name]
    given = {"alpha": 0.5, "beta": 0.25, "confidence": 0.75, "apart": False, "rule": "sgd"}
    task = planned("published", constants={**given, "delta": 0.01})
    assert isinstance(task, Adaptive)
    assert {name: getattr(task, name) for name in given} == given
    assert task.noise == Adaptive.published_noise(20.0, 0.01) < planned("published").noise


@pytest.mark.parametrize(
    ("head", "given", "error"),
    [
        ("embeddings", {"alpha": 1.0}, ("ST246", "embeddings", "alpha")),
        ("published", {"stage": True}, ("ST246", "published", "stage")),
        ("embeddings", {"share": 1.0}, ("ST434", "share")),
        ("embeddings", {"share": "much"}, ("ST241", "share")),
        ("embeddings", {"stage": 1}, ("ST242", "stage")),
        ("published", {"rule": "fast"}, ("ST243", "rule")),
        ("published", {"beta": float("nan")}, ("ST241", "beta")),
        ("published", {"delta": 0.0}, ("ST244", "delta")),
        ("published", {"alpha": -1.0}, ("ST241", "alpha")),
        ("published", 3, "ST245"),
    ],
)
def test_wrong_constants_are_refused(head, given, error):
    with raises(StudyError, error):
        planned(head, constants=given)


def test_a_first_stage_gives_a_head_that_predicts_and_asks_as_it_was_told():
    people = tables(400, "default")
    model = SplitClassifier(label="bank.default", epsilon=50.0, head="embeddings", constants={"stage": True})
    model.simulate(people, roster("default"))
    assert model.own_["shop"]["centre"].all()
    assert model.score(people) > 0.6


# --- encoders


@pytest.mark.parametrize("head", HEADS)
def test_a_module_that_is_named_tells_its_width_itself(head):
    pytest.importorskip("torch")
    spec = {"kind": "module", "make": f"{__name__}:three", "clip": 2.0}
    bank = {"bank": {"kind": "linear", "width": 2}}
    model = SplitClassifier(label="bank.default", head=head, **HEADS[head] | {"encoders": {"shop": spec, **bank}})
    model.fit(federation(ROWS, "default"))
    assert model.encoders_["shop"].width == 3
    assert len(model.predict(federation(ROWS, "default"))) == ROWS


def test_a_regressor_takes_a_named_module():
    pytest.importorskip("torch")
    model = SplitRegressor(
        label="bank.amount", epsilon=8.0, encoders={"shop": {"kind": "module", "make": f"{__name__}:three"}}
    )
    model.fit(federation(ROWS, "amount"))
    assert model.plan_["widths"]["shop"] == 3


def three() -> Any:
    from torch import nn

    return nn.Linear(2, 3)


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ({"kind": "mlp", "hiden": [3]}, ("ST306", "mlp", "hiden")),
        ({"kind": "cosine", "scale": -1.0}, ("ST308", "scale")),
        ({"kind": "cnn", "shape": [28, 14], "width": 3}, ("ST312", "28, 14", "392")),
        ({"kind": "edges", "shape": [28, 14], "width": 3}, ("ST312", "28, 14", "392")),
        ({"kind": "convolution", "width": 3}, ("ST311", "shape", "2", "3")),
        ({"kind": "linear", "width": 3, "over": {"kind": "cosine", "widht": 3}}, ("ST306", "widht")),
        ({"kind": "linear", "width": 3, "over": {"kind": "nothing"}}, "ST256"),
        ({"kind": "linear", "width": 3, "over": 3}, "ST255"),
    ],
)
def test_options_are_read_when_a_study_is_planned(spec, error):
    with raises(StudyError, error) as raised:
        planned("committee", encoders={"shop": spec})
    assert str(raised.value).startswith("the encoder of shop: ")


def test_planning_a_network_needs_no_torch(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "torch", None)
    planned("committee", encoders={"shop": {"kind": "mlp", "width": 3}})


@pytest.mark.parametrize("head", HEADS)
def test_a_module_that_fails_on_rows_is_its_partys(head):
    torch = pytest.importorskip("torch")

    class Late(torch.nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.map = torch.nn.Linear(2, 3)

        def forward(self, rows):
            if len(rows) == ROWS:
                raise RuntimeError(f"bad cell {rows[0, 0]}")
            return self.map(rows)

    model = SplitClassifier(label="bank.default", head=head, **HEADS[head] | {"encoders": {"shop": Late()}})
    with raises(StudyError, "ST247", "RuntimeError") as raised:
        model.simulate(tables(ROWS, "default"), roster("default"))
    assert "cell " not in str(raised.value)
    assert raised.value.__suppress_context__


def test_a_module_without_gradients_of_single_rows_is_its_partys():
    torch = pytest.importorskip("torch")

    class Stepped(torch.nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.map = torch.nn.Linear(2, 1)

        def forward(self, rows):
            return self.map(rows) * (1.0 if float(rows.detach().abs().max()) >= 0 else 2.0)

    how: dict[str, Any] = {"head": "embeddings", "training": "labels", "label_epsilon": 2.0, "epochs": 2}
    model = SplitClassifier(label="bank.default", epsilon=8.0, encoders={"shop": Stepped()}, **how)
    with raises(StudyError, "ST247", "RuntimeError"):
        model.simulate(tables(ROWS, "default"), roster("default"))


@pytest.mark.parametrize("made", [lambda rows: (rows, rows), lambda rows: [rows]])
def test_a_module_that_gives_no_tensor_is_told_so(made):
    torch = pytest.importorskip("torch")

    class Several(torch.nn.Module):  # type: ignore[name-defined, misc]
        def forward(self, rows):
            return made(rows)

    with raises(StudyError, "ST297"):
        planned("committee", encoders={"shop": Several()})


def test_a_module_of_the_head_that_does_not_fit_says_why():
    torch = pytest.importorskip("torch")
    model = SplitClassifier(label="bank.default", epsilon=8.0, head="embeddings", head_module=torch.nn.Linear(7, 2))
    with raises(StudyError, "ST289", "64", "2"):
        model.simulate(tables(ROWS, "default"), roster("default"))


def test_a_module_of_the_head_that_fails_on_rows_is_its_partys():
    torch = pytest.importorskip("torch")

    class Late(torch.nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.map = torch.nn.Linear(64, 2)

        def forward(self, rows):
            if len(rows) > 10:
                raise KeyError(f"cell {rows[0, 0]}")
            return self.map(rows)

    model = SplitClassifier(label="bank.default", epsilon=8.0, head="embeddings", head_module=Late())
    with raises(StudyError, "ST288", "KeyError") as raised:
        model.simulate(tables(ROWS, "default"), roster("default"))
    assert "cell " not in str(raised.value)


@pytest.mark.parametrize(
    ("head", "given"), [("embeddings", {"stage": True}), ("published", {"alpha": 0.5, "rule": "sgd"})]
)
def test_a_model_with_constants_comes_back_from_its_files(head, given, tmp_path):
    encoders = {party: {"kind": "linear", "width": 2} for party in ("bank", "shop")}
    people = tables(300, "default")
    model = SplitClassifier(
        label="bank.default", head=head, constants=given, **HEADS[head] | {"encoders": encoders, "rows": 300}
    )
    model.simulate(people, roster("default"))
    again = SplitClassifier.load(model.save(tmp_path / "model.json"))
    for party in model.holders:
        again.load_kept(model.save_kept(tmp_path / f"{party}.npz", party))
    assert (again.predict(people) == model.predict(people)).all()
