"""Networks: gradients of each row, the same numbers for equal seeds and after a file, and what a module must be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from colonnade.errors import StudyError
from colonnade.kinds.split.encoders import RowEncoder, encoder_from, from_bytes, runs_code, to_bytes
from tests.kinds.split.test_encoders import changed
from tests.support.errors import refused

torch = pytest.importorskip("torch")
nn = torch.nn


SPECS: dict[str, dict[str, Any]] = {
    "mlp": {"kind": "mlp", "width": 3, "hidden": [5]},
    "no hidden": {"kind": "mlp", "width": 3, "hidden": [], "activation": "relu"},
    "cnn": {"kind": "cnn", "shape": [6, 4], "width": 3, "channels": [2], "size": 3, "hidden": [4]},
    "colours": {"kind": "cnn", "shape": [4, 3, 2], "width": 3, "channels": [2], "size": 2, "activation": "relu"},
    "linear": {"kind": "linear", "width": 3},
    "over": {"kind": "linear", "width": 3, "over": {"kind": "cosine", "width": 8}},
    "over network": {"kind": "linear", "width": 3, "over": {"kind": "mlp", "width": 8}},
}


def rows(count: int = 7, columns: int = 24) -> NDArray[np.float64]:
    return np.random.default_rng(5).uniform(-1, 1, (count, columns))


@pytest.mark.parametrize("name", SPECS)
def test_gradients_are_those_of_the_embedding_and_equal_seeds_and_files_give_equal_numbers(name: str) -> None:
    before = torch.random.get_rng_state()
    encoder, second = (encoder_from(SPECS[name], 24, seed=1) for _ in range(2))
    assert torch.equal(before, torch.random.get_rng_state())  # torch's own chance is left alone
    other = encoder_from(SPECS[name], 24)
    assert any(not np.allclose(a, b) for a, b in zip(second.arrays().values(), other.arrays().values(), strict=True))
    start = np.random.default_rng(3).standard_normal(encoder.parameters) * 0.3
    for each in (encoder, second):
        each.move(start)  # also a map that starts at zero
    again = from_bytes(to_bytes(encoder))
    assert (type(again), again.options()) == (type(encoder), encoder.options())
    for same in (second, again):
        assert np.array_equal(encoder.embed(rows()), same.embed(rows()))
    assert encoder.embed(rows()).dtype == np.float64
    learner = RowEncoder(encoder, rows())
    places, slopes = np.array([5, 0, 3]), np.random.default_rng(1).standard_normal((3, 3))
    summed = learner.pull_back(places, slopes)
    each = np.vstack(list(learner.pull_back_each(places, slopes)))
    assert each.shape == (3, learner.parameters)
    assert np.allclose(each.sum(axis=0), summed, atol=1e-4)
    alone = np.vstack([learner.pull_back(places[[at]], slopes[[at]]) for at in range(3)])
    assert np.allclose(each, alone, atol=1e-4)
    direction, size = np.random.default_rng(2).standard_normal(learner.parameters), 1e-2
    learner.move(size * direction)
    above = (learner.embed(places) * slopes).sum()
    learner.move(-2 * size * direction)
    below = (learner.embed(places) * slopes).sum()
    assert np.isclose((above - below) / (2 * size), summed @ direction, rtol=2e-2, atol=2e-2)


def test_factors_give_the_gradients_of_a_linear_map_over_features_that_are_computed_once() -> None:
    encoder = encoder_from(SPECS["over"], 24, seed=0)
    encoder.move(np.ones(encoder.parameters))
    whole, learner = encoder.embed(rows()), RowEncoder(encoder, rows())
    places, slopes = np.arange(7), np.random.default_rng(1).standard_normal((7, 3))
    factors = learner.factors(places, slopes)
    each = np.einsum("ni,nj->nij", *factors).reshape(7, -1)
    assert np.allclose(each, np.vstack(list(learner.pull_back_each(places, slopes))))
    assert np.allclose(np.linalg.norm(factors[0][:, :-1], axis=1), 1.0)
    assert RowEncoder(encoder_from(SPECS["mlp"], 24), rows()).factors(places, slopes) is None
    encoder.below.embed = None
    assert np.allclose(learner.embed(places), whole)


def test_a_users_module_becomes_an_encoder_and_is_not_changed_itself() -> None:
    module = nn.Sequential(nn.Linear(24, 6), nn.Dropout(0.5), nn.LayerNorm(6), nn.Linear(6, 2))
    frozen = module[0]
    frozen.requires_grad_(False)
    kept = {name: each.clone() for name, each in module.state_dict().items()}
    encoder: Any = encoder_from(module, 24)
    assert (encoder.kind, encoder.width) == ("module", 2)
    assert encoder.parameters == 12 + 6 * 2 + 2  # not those of the frozen layer
    before = encoder.embed(rows())
    assert np.array_equal(encoder.embed(rows()), before)  # no dropout
    encoder.move(np.ones(encoder.parameters))
    assert not np.allclose(encoder.embed(rows()), before)
    assert all(torch.equal(each, kept[name]) for name, each in module.state_dict().items())
    assert module.training


def test_an_image_module_is_given_channels_first() -> None:
    class Corner(nn.Module):  # type: ignore[misc]
        def forward(self, images: Any) -> Any:
            assert images.shape[1:] == (2, 4, 3)
            return images[:, 1, 0, :]

    encoder = encoder_from({"kind": "module", "make": Corner, "shape": [4, 3, 2]}, 24)
    assert np.allclose(encoder.embed(rows()), rows().reshape(7, 4, 3, 2)[:, 0, :, 1], atol=1e-6)


class Averaging(nn.Module):  # type: ignore[misc]
    def forward(self, found: Any) -> Any:
        return found - found.mean(dim=0)


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (Averaging(), "ST337"),
        (nn.BatchNorm1d(24, track_running_stats=False), "ST337"),
        (nn.Linear(23, 2), ("ST338", "24")),
        (nn.Unflatten(1, (4, 6)), "ST339"),
        (nn.Flatten(0), "ST339"),
        (3, "ST263"),
    ],
)
def test_a_module_that_is_no_encoder_is_refused(module: Any, said: str) -> None:
    refused(StudyError, said, encoder_from, module, 24)


def test_batch_normalisation_has_no_gradients_of_one_row_and_what_is_not_finite_is_zero() -> None:
    encoder = encoder_from(nn.Sequential(nn.Linear(24, 3), nn.BatchNorm1d(3)), 24)
    learner = RowEncoder(encoder, rows())  # frozen statistics do as they are
    refused(StudyError, "ST302", next, learner.pull_back_each(np.arange(3), np.ones((3, 3))))
    table = rows()
    table[2, 3] = np.inf
    found = encoder_from(nn.Linear(24, 2), 24).embed(table)
    assert (found[2] == 0).all()
    assert (found[[0, 1, 3]] != 0).all()


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"kind": "mlp", "hidden": 3}, ("ST311", "hidden")),
        ({"kind": "mlp", "activation": "sine"}, ("ST310", "tanh", "relu")),
        ({"kind": "cnn", "shape": [6, 4], "channels": [2, 2, 2]}, "ST286"),
        ({"kind": "linear", "over": {"kind": "cosine"}}, "ST255"),
        ({"kind": "linear", "width": 2, "over": "cosine"}, "ST255"),
        ({"kind": "linear", "width": 2, "over": {"kind": "linear", "width": 3, "over": {}}}, "ST255"),
        ({"kind": "module", "make": "no.such.package:make"}, "ST261"),
        ({"kind": "module", "make": "colonnade"}, "ST261"),
        ({"kind": "module", "make": "json:dumps.x"}, "ST261"),
        ({"kind": "module"}, "ST263"),
        ({"kind": "module", "make": nn.Linear}, ("ST262", "TypeError")),
        ({"kind": "module", "make": nn.Flatten, "shape": [3]}, "ST260"),
        ({"kind": "module", "make": nn.Flatten, "depth": 3}, ("ST259", "depth")),
        ({"kind": "module", "make": nn.Flatten, "weights": "nowhere.npz"}, "ST257"),
    ],
)
def test_what_is_wrong_with_a_specification_is_said(spec: dict[str, Any], said: str) -> None:
    refused(StudyError, said, encoder_from, spec, 24)


def test_there_is_no_gpu_to_be_had_by_another_name() -> None:
    refused(StudyError, "ST330", encoder_from, SPECS["mlp"], 24, device="gpu")
    if not torch.cuda.is_available():
        refused(StudyError, "ST331", encoder_from, SPECS["mlp"], 24, device="cuda")


# --- files


def test_a_file_that_does_not_fit_its_layers_is_refused_and_gets_no_memory_for_them() -> None:
    data = to_bytes(encoder_from({"kind": "mlp", "width": 3, "hidden": [4]}, 24))
    for arrays in ({"array.0.weight": None}, {"array.9.bias": np.zeros(3)}, {"array.0.weight": np.zeros((4, 23))}):
        refused(StudyError, "ST303|ST304", from_bytes, changed(data, **arrays))
    refused(StudyError, "ST305", from_bytes, changed(data, **{"array.0.bias": np.full(4, np.inf)}))
    refused(StudyError, "ST303", from_bytes, changed(data, {"options": {"width": 60000, "hidden": [60000] * 8}}))
    refused(StudyError, "ST287", encoder_from, {"kind": "mlp", "hidden": [60000] * 8}, 24)
    refused(StudyError, "ST316", encoder_from, {"kind": "cosine", "width": 60000}, 1 << 20)


MODULE = """
import torch

def make():
    return torch.nn.Sequential(torch.nn.Linear(24, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
"""


def test_a_party_brings_a_module_and_its_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_encoders.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    import my_encoders

    module = my_encoders.make()
    np.savez(tmp_path / "encoder.npz", **{name: each.numpy() for name, each in module.state_dict().items()})
    spec = {"kind": "module", "make": "my_encoders:make", "weights": str(tmp_path / "encoder.npz")}
    assert runs_code(spec)
    assert runs_code({"kind": "linear", "width": 2, "over": spec})
    assert not runs_code(SPECS["over"])
    encoder = encoder_from(spec, 24)
    assert np.allclose(encoder.embed(rows()), encoder_from(module, 24).embed(rows()))

    data = to_bytes(encoder)
    assert b"my_encoders" not in data  # a file never says which code is run
    refused(StudyError, "ST254", from_bytes, data)
    for given in (module, my_encoders.make, "my_encoders:make"):
        assert np.array_equal(from_bytes(data, given).embed(rows()), encoder.embed(rows()))
    refused(StudyError, "ST303", from_bytes, data, torch.nn.Linear(24, 2))
    (tmp_path / "encoder.npz").write_bytes(b"no weights")
    refused(StudyError, "ST258", encoder_from, spec, 24)
