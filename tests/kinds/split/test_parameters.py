"""Parameters of split networks: which belong to which head, specifications of encoders, modules of a party's own."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from colonnade import SplitClassifier, SplitRegressor
from colonnade.errors import StudyError
from colonnade.kinds.split import choice
from colonnade.kinds.split.adaptive.task import Adaptive
from colonnade.kinds.split.embeddings.task import Embeddings
from tests.kinds.split.people import federation, roster, tables
from tests.support.errors import raises, refused

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


def classifier(head: str, **more: object) -> SplitClassifier:
    return SplitClassifier(label="bank.default", head=head, **HEADS[head] | more)  # type: ignore[arg-type]


def planned(head: str, **more: object) -> Any:
    return classifier(head, **more).plan(roster("default"))


def test_a_parameter_of_another_head_is_refused_by_its_name():
    common = {"label", "delta", "head", "encoders", "width", "rows", "rows_at_most", "threshold"}
    assert set(OTHER) == set(choice.BELONGS) == {*SplitClassifier.__dataclass_fields__} - common
    for name, heads in choice.BELONGS.items():
        for head in set(HEADS) - set(heads):
            with raises(StudyError, "ST231", name, head):
                planned(head, **{name: OTHER[name]})


def test_what_is_about_training_is_refused_without_training():
    for name in ("epochs", "batches", "learning_rate"):
        refused(StudyError, "ST232", name, planned, "embeddings", **{name: OTHER[name]})
        planned("embeddings", training="labels", label_epsilon=1.0, **{name: OTHER[name]})
    refused(StudyError, "ST232", "epochs", planned, "committee", epochs=3)
    planned("committee", epochs=3, training="own", rows=ROWS, width=2)
    refused(StudyError, "ST233", "own", "committee", planned, "embeddings", training="own")
    refused(StudyError, "ST233", "rounds", "embeddings", planned, "committee", training="rounds")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"head": "alone"}, ("ST234", "auto", "committee", "embeddings", "published")),
        ({"epsilon": None}, "ST224"),
        ({"encoders": {"clinic": {}}}, ("ST273", "clinic", "'bank', 'shop'")),
        ({"encoders": [1]}, "ST272"),
        ({"encoders": {"shop": {"kind": "tree"}}}, ("ST276", "shop", "tree", "own")),
        ({"encoders": {"shop": {"kind": "cosine", "colour": 1}}}, ("ST306", "colour")),
        ({"encoders": {"shop": {"width": 0}}}, "ST150"),
        ({"encoders": {"shop": {"clip": -1.0}}}, ("ST277", "shop")),
        ({"encoders": {"shop": {"kind": "own", "width": 3, "scale": 2}}}, "ST275"),
        ({"encoders": {"shop": {"kind": "own", "width": 3}}}, ("ST271", "shop")),
        ({"encoders": {"shop": {"shape": [3, 3]}}}, "ST312"),
        ({"training": "own", "rows": None}, "ST223"),
        ({"training": "own", "rows": 60, "encoders": {"bank": {"kind": "cosine"}}}, "ST279"),
        ({"head": "embeddings", "label_epsilon": 1.0}, "ST229"),
        ({"head": "embeddings", "training": "labels", "encoders": {"shop": {"kind": "cosine"}}}, "ST279"),
        ({"head": "published", "epsilon": None}, "ST216"),
        ({"solver": "tree"}, "ST280"),
        ({"label": "bank.a"}, "ST293"),
        ({"label": "default"}, "ST188"),
    ],
)
def test_parameters_that_make_no_sense_are_refused_in_one_sentence(given, said):
    with raises(StudyError, said) as caught:
        SplitClassifier(**{"label": "bank.default", "epsilon": 20.0, "width": 16} | given).fit(
            federation(60, "default")
        )
    assert "\n" not in str(caught.value)


def test_labels_of_the_wrong_kind_and_rows_that_are_not_said_are_refused():
    refused(StudyError, "ST294", SplitRegressor(label="bank.default", epsilon=1.0).fit, federation(60, "default"))
    refused(StudyError, "ST227", planned, "embeddings", rows=None)
    refused(StudyError, "ST215", planned, "published", rows=None)


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


def test_a_model_with_a_stage_predicts_and_comes_back_from_its_files(tmp_path):
    encoders = {party: {"kind": "linear", "width": 2} for party in ("bank", "shop")}
    people = tables(400, "default")
    model = classifier("embeddings", constants={"stage": True}, encoders=encoders, rows=400, epsilon=50.0)
    model.simulate(people, roster("default"))
    assert model.own_["shop"]["centre"].all()
    assert model.score(people) > 0.6
    again = SplitClassifier.load(model.save(tmp_path / "model.json"))
    for party in model.holders:
        again.load_kept(model.save_kept(tmp_path / f"{party}.npz", party))
    assert (again.predict(people) == model.predict(people)).all()


# --- encoders


def test_options_are_read_when_a_study_is_planned_and_need_no_torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    planned("committee", encoders={"shop": {"kind": "mlp", "width": 3}})
    for spec, *said in (
        ({"kind": "mlp", "hiden": [3]}, "ST306", "mlp", "hiden"),
        ({"kind": "cosine", "scale": -1.0}, "ST308", "scale"),
        ({"kind": "cnn", "shape": [28, 14], "width": 3}, "ST312", "28, 14", "392"),
        ({"kind": "edges", "shape": [28, 14], "width": 3}, "ST312", "28, 14", "392"),
        ({"kind": "convolution", "width": 3}, "ST311", "shape", "2", "3"),
        ({"kind": "linear", "width": 3, "over": {"kind": "cosine", "widht": 3}}, "ST306", "widht"),
        ({"kind": "linear", "width": 3, "over": {"kind": "nothing"}}, "ST256"),
        ({"kind": "linear", "width": 3, "over": 3}, "ST255"),
    ):
        with raises(StudyError, said, "the encoder of shop: "):
            planned("committee", encoders={"shop": spec})


def three() -> Any:
    from torch import nn

    return nn.Linear(2, 3)


@pytest.mark.parametrize("head", HEADS)
def test_a_module_that_is_named_tells_its_width_itself(head):
    pytest.importorskip("torch")
    spec, bank = {"kind": "module", "make": f"{__name__}:three", "clip": 2.0}, {"kind": "linear", "width": 2}
    model = classifier(head, encoders={"shop": spec, "bank": bank}).fit(federation(ROWS, "default"))
    assert model.encoders_["shop"].width == 3
    assert len(model.predict(federation(ROWS, "default"))) == ROWS
    if head == "committee":
        number = SplitRegressor(label="bank.amount", epsilon=8.0, encoders={"shop": spec})
        assert number.fit(federation(ROWS, "amount")).plan_["widths"]["shop"] == 3


def failing(made: Any, columns: int = 2, width: int = 3) -> Any:
    """A module that gives what is made of its rows and of what a linear layer would give."""
    torch = pytest.importorskip("torch")

    class Failing(torch.nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.map = torch.nn.Linear(columns, width)

        def forward(self, rows):
            return made(rows, self.map(rows))

    return Failing()


def late(rows: Any, found: Any) -> Any:
    """It fails on tables, and not on the few rows by which modules are tried."""
    if len(rows) == ROWS:
        raise KeyError(f"bad cell {rows[0, 0]}")
    return found


@pytest.mark.parametrize("head", HEADS)
def test_a_module_that_fails_on_rows_is_its_partys(head):
    with raises(StudyError, "ST247", "KeyError") as raised:
        classifier(head, encoders={"shop": failing(late)}).simulate(tables(ROWS, "default"), roster("default"))
    assert "cell " not in str(raised.value)
    assert raised.value.__suppress_context__


def test_modules_that_do_not_fit_say_why():
    held, seats = tables(ROWS, "default"), roster("default")
    for several in (lambda rows, found: (rows, rows), lambda rows, found: [rows]):
        refused(StudyError, "ST297", planned, "committee", encoders={"shop": failing(several)})
    stepped = failing(lambda rows, found: found * (1.0 if float(rows.detach().abs().max()) >= 0 else 2.0))
    learning = classifier("embeddings", training="labels", label_epsilon=2.0, epochs=2, encoders={"shop": stepped})
    refused(StudyError, "ST247", "RuntimeError", learning.simulate, held, seats)
    refused(StudyError, "ST289", "64", "2", classifier("embeddings", head_module=three()).simulate, held, seats)
    with raises(StudyError, "ST288", "KeyError") as raised:
        classifier("embeddings", head_module=failing(late, 64, 2)).simulate(held, seats)
    assert "cell " not in str(raised.value)
