"""Encoders: features drawn without looking at rows, the same for equal seeds and after a file; and what is refused."""

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

from colonnade.errors import ColonnadeError, DataError, StudyError
from colonnade.kinds.split.encoders import RowEncoder, encoder_from, from_bytes, load_encoder, save_encoder, to_bytes
from tests.support.errors import raises, refused

SPECS = {
    "cosine": {"kind": "cosine", "width": 40},
    "normalised": {"kind": "cosine", "width": 3, "normalise": True, "orthogonal": False},
    "linear": {"kind": "linear", "width": 7},
    "identity": {"kind": "linear"},
    "edges": {"kind": "edges", "shape": [6, 4], "every": 2},
    "cosines of edges": {"kind": "edges", "shape": [4, 3, 2], "width": 11, "every": 1, "orientations": 5},
}


def rows(count: int = 9, columns: int = 24) -> NDArray[np.float64]:
    return np.random.default_rng(5).uniform(-1, 1, (count, columns))


@pytest.mark.parametrize("name", SPECS)
def test_embeddings_follow_from_the_row_and_the_seed_alone_also_after_a_file(name: str) -> None:
    encoder = encoder_from(SPECS[name], 24, seed=3)
    found = encoder.embed(rows())
    assert (found.shape, found.dtype) == ((9, encoder.width), np.float64)
    assert np.allclose(found, np.vstack([encoder.embed(row[None]) for row in rows()]), atol=1e-5)
    assert np.linalg.norm(found - found[0], axis=1)[1:].min() > 1e-3  # different rows, different embeddings
    assert np.array_equal(encoder_from(SPECS[name], 24, seed=3).embed(rows()), found)
    unseeded = encoder_from(SPECS[name], 24).embed(rows())
    assert np.allclose(unseeded, found) == (name in ("identity", "edges"))  # which have nothing to draw
    again = from_bytes(to_bytes(encoder))
    assert (type(again), again.options()) == (type(encoder), encoder.options())
    assert np.array_equal(again.embed(rows()), found)


def test_cosine_features_approach_the_gaussian_kernel() -> None:
    table, scale = rows(30), 1.5
    found = encoder_from({"kind": "cosine", "width": 20_000, "scale": scale}, 24, seed=0).embed(table)
    distances = ((table[:, None] - table) ** 2).sum(axis=2)
    assert np.abs(found @ found.T - np.exp(-(scale**2) / 24 * distances / 2)).max() < 0.04
    assert np.linalg.norm(found, axis=1).max() <= np.sqrt(2)


def test_edges_are_what_they_say() -> None:
    """The same numbers, pixel by pixel."""
    encoder = encoder_from({"kind": "edges", "shape": [6, 4, 2], "every": 2, "window": 2, "orientations": 4}, 48)
    for row, embedding in zip(rows(3, 48), encoder.embed(rows(3, 48)), strict=True):
        image = np.pad(row.reshape(6, 4, 2), ((1, 1), (1, 1), (0, 0)), mode="edge")
        found = np.zeros((2, 1, 4))
        for middle, part in ((5 / 3, 0), (10 / 3, 1)):
            for down, across, colour in np.ndindex(6, 4, 2):
                weight = max(0, 1 - abs(down - middle) / 2) * max(0, 1 - abs(across - 1.5) / 2)
                right = image[down + 1, across + 2, colour] - image[down + 1, across, colour]
                under = image[down + 2, across + 1, colour] - image[down, across + 1, colour]
                found[part, 0] += weight * np.maximum([right, under, -right, -under], 0)
        seen = np.sqrt(found) - np.sqrt(found).mean(axis=2, keepdims=True)
        assert np.allclose(embedding, seen.ravel() / np.linalg.norm(seen), atol=1e-5)
    assert not encoder.embed(np.full((2, 48), 0.3)).any()  # nothing to see


def test_many_rows_are_embedded_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = encoder_from(SPECS["edges"], 24, seed=1)
    whole = encoder.embed(rows(50))
    monkeypatch.setattr(
        "colonnade.kinds.split.encoder_base.row_blocks", lambda rows, each: [slice(0, 20), slice(20, 50)]
    )
    assert np.allclose(encoder.embed(rows(50)), whole, atol=1e-6)


@pytest.mark.parametrize(
    ("spec", "columns", "said"),
    [
        ({"kind": "forest"}, 4, "ST256"),
        ({"width": 4}, 4, "ST256"),
        (["cosine"], 4, "ST263"),
        ({"kind": "cosine", "width": 0}, 4, ("ST307", "width")),
        ({"kind": "cosine", "width": True}, 4, ("ST307", "width")),
        ({"kind": "cosine", "scale": "wide"}, 4, ("ST308", "scale")),
        ({"kind": "cosine", "scale": float("nan")}, 4, ("ST308", "scale")),
        ({"kind": "cosine", "normalise": 1}, 4, "ST309"),
        ({"kind": "cosine", "depth": 2}, 4, ("ST306", "depth", "width", "scale")),
        ({"kind": "edges"}, 4, ("ST311", "shape", "2", "3")),
        ({"kind": "edges", "shape": [2, 3]}, 4, ("ST312", "6", "4")),
        ({"kind": "mlp", "activation": "mine"}, 4, ("ST310", "tanh", "relu")),
    ],
)
def test_what_is_wrong_with_a_specification_is_said(spec: object, columns: int, said: str) -> None:
    with raises(StudyError, said):
        encoder_from(spec, columns)  # type: ignore[arg-type]


def test_rows_are_found_by_their_places_and_must_fit_the_encoder() -> None:
    for places in ([0, 3, 6], [2], [], [5, 4, 3], [0, 1, 3], [-1, 0], [8, 8], [1, 0, -1], [7, 8]):
        found = RowEncoder(encoder_from({"kind": "linear"}, 24), rows()).embed(np.array(places, dtype=np.int64))
        assert np.array_equal(found, rows()[np.array(places, dtype=np.int64)])
    encoder = encoder_from(SPECS["cosine"], 24)
    assert encoder_from(encoder, 24) is encoder
    refused(StudyError, "ST249", "24", "5", encoder_from, encoder, 5)
    refused(DataError, "DA086", "24", encoder.embed, rows(3, 5))
    refused(ColonnadeError, "ST248", RowEncoder(encoder, rows()).pull_back, np.arange(2), np.zeros((2, 40)))


# --- files


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
    refused(StudyError, said, from_bytes, changed(data, about, **arrays))


def test_files_are_private_and_what_is_none_is_refused_by_its_name(tmp_path: Path) -> None:
    path, encoder = tmp_path / "encoder.npz", encoder_from(SPECS["cosine"], 24)
    save_encoder(encoder, path)
    assert path.stat().st_mode & 0o077 == 0
    assert np.array_equal(load_encoder(path).embed(rows()), encoder.embed(rows()))
    refused(StudyError, "ST253", "nowhere.npz", load_encoder, tmp_path / "nowhere.npz")
    pickled = io.BytesIO()
    np.savez(pickled, encoder=np.array([{"kind": "cosine"}], dtype=object))
    cut = to_bytes(encoder_from({"kind": "linear"}, 2))[:-9]
    for data in (b"", b"PK", b"nothing at all", cut, pickled.getvalue()):  # pickles are never read
        path.write_bytes(data)
        refused(StudyError, "ST250", path, load_encoder, path)


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
import colonnade
import numpy as np
from colonnade.errors import StudyError
from colonnade.kinds.split import embedding_programs as private_training, heads
from colonnade.kinds.split.encoders import RowEncoder, encoder_from, from_bytes, to_bytes

rows = np.random.default_rng(0).uniform(0, 1, (6, 24))
edges = {"kind": "edges", "shape": [6, 4], "width": 8, "every": 2}
for spec in (edges, {"kind": "cosine"}, {"kind": "linear", "width": 2, "over": edges}):
    encoder = encoder_from(spec, 24, seed=1)
    assert from_bytes(to_bytes(encoder)).embed(rows).shape == (6, encoder.width)
head = heads.SoftmaxHead(np.array([0, 1, 0, 1, 1, 0]), 24, 2)
head.slopes(np.arange(6), rows)
for spec in ({"kind": "mlp"}, {"kind": "module", "make": "json:dumps"}):
    try:
        encoder_from(spec, 24)
    except StudyError as error:
        print(error)
"""


@pytest.mark.system
def test_everything_but_networks_works_without_torch() -> None:
    found = subprocess.run([sys.executable, "-c", WITHOUT_TORCH], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert found.stdout.count('pip install "colonnade[nn]"') == 2
