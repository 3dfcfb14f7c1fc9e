"""Fitted models as ONNX files with the encoder inside, for those who hold all columns: raw rows in, predictions out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import StudyError
from colonnade.models import onnx_graph
from colonnade.models.design import without_label
from colonnade.models.files import replace_file
from colonnade.models.newcomers import Matrix
from colonnade.models.onnx_graph import Graph, chosen, clipped, clipped_around_middles, encoded, weighted
from colonnade.tables import Schema
from colonnade.tables.centred import Centred, Norm
from colonnade.versions import installed


class Scored(Protocol):
    """What the graph of a model adds to its scores."""

    def __call__(self, graph: Graph, scores: str) -> None:
        """Give out what scores of shape (rows, classes) predict."""


def linear_to_onnx(
    told: Mapping[str, str],
    schemas: Mapping[str, Schema],
    label: str | None,
    norm: Norm,
    linear: tuple[Matrix, Matrix],
    scored: Scored,
) -> bytes:
    """Public weights and an intercept as an ONNX graph."""
    onnx_graph.needs_onnx()
    graph, rows = Graph(), []
    for party in schemas:
        if (schema := without_label(schemas, label, party)) is not None:
            rows.append(clipped_around_middles(graph, encoded(graph, party, schema), Centred(schema, None, norm)))
    scored(graph, weighted(graph, rows, *linear))
    return graph.packed(told["kind"], told)


def components_to_onnx(
    told: Mapping[str, str], schemas: Mapping[str, Schema], components: Matrix, mean: Matrix
) -> bytes:
    """Principal components as an ONNX graph that gives the scores of raw rows."""
    onnx_graph.needs_onnx()
    graph, rows = Graph(), []
    for party, schema in schemas.items():
        found = encoded(graph, party, schema)
        rows.append(clipped(graph, found, schema.clip) if schema.clip < schema.max_norm else found)
    graph.output(weighted(graph, rows, components, -components @ mean), "scores", ["rows", len(components)])
    return graph.packed(told["kind"], told)


def classes_scored(
    graph: Graph, scores: str, classes: NDArray[Any], limit: float | None, shares: Matrix | None
) -> None:
    """Chances and classes by logistic scores: of two classes by a limit, of more the likeliest, or beside its share."""
    half = graph.of("Mul", graph.add("Tanh", graph.of("Mul", scores, 0.5)), 0.5)
    found = graph.of("Add", half, 0.5)
    if len(classes) == 2:
        chances = graph.add("Concat", graph.add("Sub", graph.constant(1.0), found), found, axis=1)
        above = graph.of("Greater", found, 0.5 if limit is None else limit)
        places = graph.add("Cast", above, to=onnx_graph.onnx.TensorProto.INT64)
        places = graph.add("Squeeze", places, graph.constant(np.array([1])))
    else:
        total = graph.of("Max", graph.add("ReduceSum", found, graph.constant(np.array([1])), keepdims=1), _TINY)
        chances = graph.add("Div", found, total)
        compared = scores if shares is None else graph.add("Div", chances, graph.constant(np.asarray(shares)))
        places = graph.add("ArgMax", compared, axis=1, keepdims=0)
    label, kind = chosen(graph, places, classes)
    graph.output(label, "label", ["rows"], kind)
    graph.output(chances, "probabilities", ["rows", len(classes)])


def numbers_scored(graph: Graph, scores: str, *, logarithmic: bool) -> None:
    """Numbers by linear scores."""
    found = graph.add("Squeeze", scores, graph.constant(np.array([1])))
    graph.output(graph.of("Sub", graph.add("Exp", found), 1.0) if logarithmic else found, "prediction", ["rows"])


def means_scored(graph: Graph, scores: str, family: Any, own_unit: tuple[float, float]) -> None:
    """What a generalised linear model predicts by its linear predictors: expected labels, within their bounds."""
    unit, zero = own_unit
    own = graph.of("Div", graph.of("Sub", graph.add("Squeeze", scores, graph.constant(np.array([1]))), zero), unit)
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


def written(content: bytes, path: str | Path) -> Path:
    """The file that holds an exported model."""
    target = Path(path)
    replace_file(target, content)
    return target


def about(kind: str, label: str | None = None) -> dict[str, str]:
    """What an ONNX file says of itself."""
    return {"kind": kind, "label": label or "", "colonnade": installed()["colonnade"]}


_TINY = float(np.finfo(np.float64).tiny)
