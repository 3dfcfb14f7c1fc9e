"""Encoders in files: the same embeddings again, and an error for everything else."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from colonnade.errors import StudyError
from colonnade.kinds.split.encoders import encoder_from, from_bytes, load_encoder, runs_code, save_encoder, to_bytes
from tests.support.errors import raises

SPECS: dict[str, dict[str, Any]] = {
    "cosine": {"kind": "cosine", "width": 5, "normalise": True},
    "convolution": {"kind": "convolution", "shape": [6, 4], "size": 3, "filters": 5, "width": 6},
    "edges": {"kind": "edges", "shape": [6, 4], "width": 6, "every": 2},
    "plain edges": {"kind": "edges", "shape": [6, 4], "every": 2},
    "linear": {"kind": "linear", "width": 5},
    "over": {"kind": "linear", "width": 5, "over": {"kind": "edges", "shape": [6, 4], "every": 2}},
}
NETWORKS: dict[str, dict[str, Any]] = {
    "mlp": {"kind": "mlp", "width": 3, "hidden": [4]},
    "cnn": {"kind": "cnn", "shape": [6, 4], "width": 3, "channels": [2], "size": 3},
    "over network": {"kind": "linear", "width": 2, "over": {"kind": "mlp", "width": 3}},
}


def rows(count: int = 7, columns: int = 24) -> NDArray[np.float64]:
    return np.random.default_rng(5).uniform(-1, 1, (count, columns))


@pytest.mark.parametrize("name", [*SPECS, *NETWORKS])
def test_an_encoder_is_the_same_after_a_file(name: str) -> None:
    if name in NETWORKS:
        pytest.importorskip("torch")
    encoder: Any = encoder_from((SPECS | NETWORKS)[name], 24)
    if "over" in name:
        encoder.move(np.random.default_rng(0).standard_normal(encoder.parameters))
    again = from_bytes(to_bytes(encoder))
    assert type(again) is type(encoder)
    assert again.options() == encoder.options()
    assert np.array_equal(again.embed(rows()), encoder.embed(rows()))
    assert encoder.embed(rows()).any()


def changed(data: bytes, about: dict[str, Any] | None = None, **arrays: Any) -> bytes:
    with np.load(io.BytesIO(data)) as held:
        content = {name: held[name] for name in held.files}
    content["encoder"] = np.array(json.dumps(json.loads(str(content["encoder"])) | (about or {})))
    content |= arrays
    out = io.BytesIO()
    np.savez(out, **{name: each for name, each in content.items() if each is not None})
    return out.getvalue()


@pytest.mark.parametrize(
    ("about", "arrays", "said"),
    [
        ({"columns": 23}, {}, "ST314"),
        ({"columns": 0}, {}, "ST251"),
        ({"columns": True}, {}, "ST251"),
        ({"kind": "forest"}, {}, "ST256"),
        ({"kind": ["cosine"]}, {}, "ST256"),
        ({"kind": "linear"}, {}, "ST306"),
        ({"kind": "module", "options": {}}, {}, "ST254"),
        ({"options": {"width": 6}}, {}, "ST314"),
        ({"options": {"width": 1 << 40}}, {}, ("ST307", "1")),
        ({"options": 3}, {}, "ST250"),
        ({}, {"array.weights": np.zeros((5, 24))}, "ST314"),
        ({}, {"array.weights": np.full((24, 5), np.nan)}, "ST315"),
        ({}, {"array.weights": np.zeros((24, 5), dtype=np.int64)}, "ST314"),
        ({}, {"array.weights": None}, "ST313"),
        ({}, {"array.more": np.zeros(3)}, "ST313"),
    ],
)
def test_a_file_that_does_not_fit_itself_is_refused(about: dict[str, Any], arrays: dict[str, Any], said: str) -> None:
    data = to_bytes(encoder_from({"kind": "cosine", "width": 5}, 24))
    with raises(StudyError, said):
        from_bytes(changed(data, about, **arrays))


@pytest.mark.parametrize("data", [b"", b"PK", b"nothing at all", to_bytes(encoder_from({"kind": "linear"}, 2))[:-9]])
def test_what_is_no_file_of_an_encoder_is_refused(data: bytes) -> None:
    with raises(StudyError, "ST250"):
        from_bytes(data)


def test_files_are_private_and_named_in_errors(tmp_path: Path) -> None:
    path, encoder = tmp_path / "encoder.npz", encoder_from(SPECS["cosine"], 24)
    save_encoder(encoder, path)
    assert path.stat().st_mode & 0o077 == 0
    assert np.array_equal(load_encoder(path).embed(rows()), encoder.embed(rows()))
    path.write_bytes(b"PK")
    with raises(StudyError, "ST250", path):
        load_encoder(path)
    with raises(StudyError, "ST253", "nowhere.npz"):
        load_encoder(tmp_path / "nowhere.npz")


def test_a_file_that_claims_large_layers_gets_no_memory_for_them() -> None:
    pytest.importorskip("torch")
    data = to_bytes(encoder_from(NETWORKS["mlp"], 24))
    with raises(StudyError, "ST303"):
        from_bytes(changed(data, {"options": {"width": 60000, "hidden": [60000] * 8}}))
    with raises(StudyError, "ST287"):
        encoder_from({"kind": "mlp", "hidden": [60000] * 8}, 24)
    with raises(StudyError, "ST316"):
        encoder_from({"kind": "cosine", "width": 60000}, 1 << 20)


def test_pickles_are_never_read() -> None:
    held = io.BytesIO()
    np.savez(held, encoder=np.array([{"kind": "cosine"}], dtype=object))
    with raises(StudyError, "ST250"):
        from_bytes(held.getvalue())


def test_weights_of_a_network_must_be_those_of_its_layers() -> None:
    pytest.importorskip("torch")
    data = to_bytes(encoder_from(NETWORKS["mlp"], 24))
    for arrays in ({"array.0.weight": None}, {"array.9.bias": np.zeros(3)}, {"array.0.weight": np.zeros((4, 23))}):
        with raises(StudyError, "ST303|ST304"):
            from_bytes(changed(data, **arrays))
    with raises(StudyError, "ST305"):
        from_bytes(changed(data, **{"array.0.bias": np.full(4, np.inf)}))


MODULE = """
import torch

def make():
    return torch.nn.Sequential(torch.nn.Linear(24, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
"""


def test_a_party_brings_a_module_and_its_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    (tmp_path / "my_encoders.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    with torch.random.fork_rng(devices=[]):
        import my_encoders

        module = my_encoders.make()
    weights = {name: each.numpy() for name, each in module.state_dict().items()}
    np.savez(tmp_path / "encoder.npz", **weights)
    spec = {"kind": "module", "make": "my_encoders:make", "weights": str(tmp_path / "encoder.npz")}
    assert runs_code(spec)
    assert runs_code({"kind": "linear", "width": 2, "over": spec})
    assert not runs_code(SPECS["over"])
    encoder = encoder_from(spec, 24)
    assert np.allclose(encoder.embed(rows()), encoder_from(module, 24).embed(rows()))

    data = to_bytes(encoder)
    assert b"my_encoders" not in data  # a file never says which code is run
    with raises(StudyError, "ST254"):
        from_bytes(data)
    for given in (module, my_encoders.make, "my_encoders:make"):
        assert np.array_equal(from_bytes(data, given).embed(rows()), encoder.embed(rows()))
    with raises(StudyError, "ST303"):
        from_bytes(data, torch.nn.Linear(24, 2))
    (tmp_path / "encoder.npz").write_bytes(b"no weights")
    with raises(StudyError, "ST258"):
        encoder_from(spec, 24)


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
import colonnade
import numpy as np
from colonnade.errors import StudyError
from colonnade.kinds.split import learned_heads, private_training
from colonnade.kinds.split.encoders import OverRows, encoder_from, from_bytes, to_bytes

rows = np.random.default_rng(0).uniform(0, 1, (6, 24))
edges = {"kind": "edges", "shape": [6, 4], "width": 8, "every": 2}
for spec in (edges, {"kind": "cosine"}, {"kind": "linear", "width": 2, "over": edges},
             {"kind": "convolution", "shape": [6, 4], "size": 3, "filters": 5, "width": 6}):
    encoder = encoder_from(spec, 24, seed=1)
    assert from_bytes(to_bytes(encoder)).embed(rows).shape == (6, encoder.width)
head = learned_heads.SoftmaxHead(np.array([0, 1, 0, 1, 1, 0]), 24, 2)
head.slopes(np.arange(6), rows)
for spec in ({"kind": "mlp"}, {"kind": "module", "make": "json:dumps"}):
    try:
        encoder_from(spec, 24)
    except StudyError as error:
        print(error)
"""


def test_everything_but_networks_works_without_torch() -> None:
    found = subprocess.run([sys.executable, "-c", WITHOUT_TORCH], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert found.stdout.count('pip install "colonnade[nn]"') == 2
