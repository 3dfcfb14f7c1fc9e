"""A fitted model with its encoder as an ONNX graph: raw columns in, predictions out, without this library.

Every raw column is an input of shape (rows, 1): a number and a flag as doubles, NaN where the cell is missing; a
category as text, empty where it is missing; a date as the days since 1970-01-01, as doubles. Cells that the schema has
no place for are mapped by its public rules, as in a study. All arithmetic is in 64 bits.

Fitted models as ONNX files with the encoder inside, for those who hold all columns: raw rows in, predictions out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import StudyError
from colonnade.lazy import LazyModule
from colonnade.models.base import Matrix
from colonnade.models.design import without_label
from colonnade.models.serialization import replace_file
from colonnade.tables import Schema
from colonnade.tables.table import ColumnCentring, Norm
from colonnade.versions import installed_versions

onnx: Any = LazyModule("onnx")

_OPSET, _LEARNING_OPSET, _FORMAT = 17, 3, 8  # old enough for every runtime of the last years


def require_onnx() -> None:
    """Raise an error where the package is not installed."""
    try:
        onnx.helper  # noqa: B018 - importing it
    except ImportError:
        raise StudyError("an ONNX file is made with the package onnx: pip install 'colonnade[onnx]' [ST149]") from None


class OnnxGraph:
    """The nodes of a graph as they are added; each method gives the name of what it computes."""

    def __init__(self) -> None:
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._inputs: dict[str, Any] = {}
        self._outputs: list[Any] = []
        self._count = 0

    def input(self, name: str, *, text: bool) -> str:
        """A raw column."""
        kind = onnx.TensorProto.STRING if text else onnx.TensorProto.DOUBLE
        self._inputs.setdefault(name, onnx.helper.make_tensor_value_info(name, kind, ["rows", 1]))
        return name

    def constant(self, value: Any) -> str:
        """A number or an array of numbers, as doubles; of whole numbers or texts, as they are."""
        array = np.asarray(value)
        array = array.astype(np.float64) if array.dtype.kind == "f" else array
        name = self._fresh("constant")
        if array.dtype.kind in "UO":
            raw = [str(one).encode() for one in array.tolist()]
            self._constants.append(onnx.helper.make_tensor(name, onnx.TensorProto.STRING, array.shape, raw))
        else:
            self._constants.append(onnx.numpy_helper.from_array(array, name))
        return name

    def add(self, kind: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """One operation on named values."""
        name = self._fresh(kind)
        self._nodes.append(onnx.helper.make_node(kind, list(inputs), [name], domain=domain, **attributes))
        return name

    def of(self, kind: str, value: str, *others: float) -> str:
        """One operation on a named value and numbers."""
        return self.add(kind, value, *(self.constant(float(other)) for other in others))

    def double(self, value: str) -> str:
        """Truth values or whole numbers as doubles."""
        return self.add("Cast", value, to=onnx.TensorProto.DOUBLE)

    def whole(self, value: str) -> str:
        """Doubles as whole numbers of 64 bits."""
        return self.add("Cast", value, to=onnx.TensorProto.INT64)

    def one_hot(self, places: str, size: int) -> str:
        """For each place a row of so many doubles, of which the one at this place is 1."""
        return self.double(self.add("Equal", places, self.constant(np.arange(size, dtype=np.int64))))

    def output(self, value: str, name: str, shape: Sequence[str | int], kind: str = "DOUBLE") -> None:
        """Give a value out under this name."""
        self._nodes.append(onnx.helper.make_node("Identity", [value], [name]))
        self._outputs.append(onnx.helper.make_tensor_value_info(name, getattr(onnx.TensorProto, kind), list(shape)))

    def pack(self, name: str, told: Mapping[str, str]) -> bytes:
        """The whole graph, checked."""
        graph = onnx.helper.make_graph(self._nodes, name, list(self._inputs.values()), self._outputs, self._constants)
        opsets = [onnx.helper.make_opsetid("", _OPSET), onnx.helper.make_opsetid("ai.onnx.ml", _LEARNING_OPSET)]
        made = onnx.helper.make_model(graph, opset_imports=opsets, producer_name="colonnade", ir_version=_FORMAT)
        onnx.helper.set_model_props(made, dict(told))
        onnx.checker.check_model(made, full_check=True)
        return bytes(made.SerializeToString())

    def _fresh(self, kind: str) -> str:
        self._count += 1
        return f"{kind.lower()}_{self._count}"


def encode_columns(graph: OnnxGraph, party: str, schema: Schema) -> str:
    """The encoded columns of one party's schema, side by side, before rows are clipped."""
    parts = [each.to_onnx(graph, f"{party}.{each.source(name)}") for name, each in schema.columns.items()]
    return graph.add("Concat", *parts, axis=1) if len(parts) > 1 else parts[0]


def clip_around_middles(graph: OnnxGraph, rows: str, centred: ColumnCentring) -> str:
    """Rows whose distance from the public middles is at most the clip that the schema states."""
    if centred.schema.clip >= centred.schema.max_norm or centred.schema.clip > centred.feature_clip:
        return rows
    middle = graph.constant(centred.middle)
    around = graph.add("Sub", rows, middle)
    return graph.add("Add", clip_rows(graph, around, centred.feature_clip), middle)


def clip_rows(graph: OnnxGraph, rows: str, clip: float) -> str:
    """Rows of at most this norm."""
    norm = graph.add("ReduceL2", rows, axes=[1], keepdims=1)
    least = graph.of("Max", norm, clip)
    return graph.add("Mul", rows, graph.add("Div", graph.constant(float(clip)), least))


def weigh_rows(graph: OnnxGraph, rows: Sequence[str], coef: NDArray[np.float64], offset: NDArray[np.float64]) -> str:
    """The weighted sums of all parties' rows, side by side, and an offset."""
    side = graph.add("Concat", *rows, axis=1) if len(rows) > 1 else rows[0]
    return graph.add("Add", graph.add("MatMul", side, graph.constant(coef.T)), graph.constant(offset))


def linear_to_onnx(
    told: Mapping[str, str],
    schemas: Mapping[str, Schema],
    label: str | None,
    norm: Norm,
    linear: tuple[Matrix, Matrix],
    scored: Callable[[OnnxGraph, str], None],
) -> bytes:
    """Public weights and an intercept as an ONNX graph."""
    require_onnx()
    graph, rows = OnnxGraph(), []
    for party in schemas:
        if (schema := without_label(schemas, label, party)) is not None:
            rows.append(
                clip_around_middles(graph, encode_columns(graph, party, schema), ColumnCentring(schema, None, norm))
            )
    scored(graph, weigh_rows(graph, rows, *linear))
    return graph.pack(told["kind"], told)


def components_to_onnx(
    told: Mapping[str, str], schemas: Mapping[str, Schema], components: Matrix, mean: Matrix
) -> bytes:
    """Principal components as an ONNX graph that gives the scores of raw rows."""
    require_onnx()
    graph, rows = OnnxGraph(), []
    for party, schema in schemas.items():
        found = encode_columns(graph, party, schema)
        rows.append(clip_rows(graph, found, schema.clip) if schema.clip < schema.max_norm else found)
    graph.output(weigh_rows(graph, rows, components, -components @ mean), "scores", ["rows", len(components)])
    return graph.pack(told["kind"], told)


def add_classes(
    graph: OnnxGraph, scores: str, classes: NDArray[Any], limit: float | None, shares: Matrix | None
) -> None:
    """Chances and classes by logistic scores: of two classes by a limit, of more the likeliest, or beside its share."""
    half = graph.of("Mul", graph.add("Tanh", graph.of("Mul", scores, 0.5)), 0.5)
    found = graph.of("Add", half, 0.5)
    if len(classes) == 2:
        chances = graph.add("Concat", graph.add("Sub", graph.constant(1.0), found), found, axis=1)
        above = graph.of("Greater", found, 0.5 if limit is None else limit)
        places = graph.add("Cast", above, to=onnx.TensorProto.INT64)
        places = graph.add("Squeeze", places, graph.constant(np.array([1])))
    else:
        total = graph.of("Max", graph.add("ReduceSum", found, graph.constant(np.array([1])), keepdims=1), _TINY)
        chances = graph.add("Div", found, total)
        compared = scores if shares is None else graph.add("Div", chances, graph.constant(np.asarray(shares)))
        places = graph.add("ArgMax", compared, axis=1, keepdims=0)
    label = graph.add("Gather", graph.constant(classes), places, axis=0)
    graph.output(label, "label", ["rows"], "BOOL" if classes.dtype.kind == "b" else "STRING")
    graph.output(chances, "probabilities", ["rows", len(classes)])


def add_numbers(graph: OnnxGraph, scores: str, *, logarithmic: bool) -> None:
    """Numbers by linear scores."""
    found = graph.add("Squeeze", scores, graph.constant(np.array([1])))
    graph.output(graph.of("Sub", graph.add("Exp", found), 1.0) if logarithmic else found, "prediction", ["rows"])


def add_means(graph: OnnxGraph, scores: str, family: Any) -> None:
    """What a generalised linear model predicts by its family's own scores: expected labels, within their bounds."""
    own = graph.add("Squeeze", scores, graph.constant(np.array([1])))
    if family.name in ("poisson", "gamma"):
        inside = graph.of("Clip", own, -family.reach, family.reach)
        found = graph.add("Exp", graph.of("Add", inside, family.centre))
    elif family.name == "linear":
        log = family.transform == "log1p"
        start, end = (float(np.log1p(family.low)), float(np.log1p(family.high))) if log else (family.low, family.high)
        share = graph.of("Mul", graph.of("Add", graph.of("Clip", own, -1.0, 1.0), 1.0), 0.5 * (end - start))
        found = graph.of("Add", share, start)
        found = graph.of("Sub", graph.add("Exp", found), 1.0) if log else found
        found = graph.of("Clip", found, family.low, family.high)
    else:
        raise StudyError(f"a model of the {family.name} family cannot be written as ONNX: use to_sklearn [ST076]")
    graph.output(found, "prediction", ["rows"])


def write_export(content: bytes, path: str | Path) -> Path:
    """The file that holds an exported model."""
    replace_file(Path(path), content)
    return Path(path)


def onnx_metadata(kind: str, label: str | None = None) -> dict[str, str]:
    """What an ONNX file says of itself."""
    return {"kind": kind, "label": label or "", "colonnade": installed_versions()["colonnade"]}


_TINY = float(np.finfo(np.float64).tiny)
