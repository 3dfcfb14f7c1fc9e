"""A mixture that begins at a mixture of products over codes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from colonnade.errors import StudyError
from colonnade.kinds.synthesis.mixture.components import OwnComponents
from colonnade.kinds.synthesis.mixture.model import MixtureModel
from colonnade.kinds.synthesis.mixture.starting import merged, start_from
from colonnade.tables.columns import category, flag, number
from colonnade.tables.schema import Schema
from tests.support.errors import raises

SCHEMA = Schema(
    {
        "age": number(0, 100),
        "city": category(list("abc"), missing="none"),
        "member": flag(),
        "income": number(0, 999, transform="log1p"),
        "height": number(100, 200),
    }
)
FAMILIES = {"income": "bins:6", "height": "gaussian:20"}


@dataclass(frozen=True)
class Coding:
    edges: tuple[float, ...] | None = None
    missing: int | None = None


CODINGS = (
    Coding(tuple(np.linspace(0, 100, 21))),
    Coding(missing=3),
    Coding(),
    Coding(tuple(np.expm1(np.linspace(0, np.log(1000), 7)))),
    Coding(tuple(np.linspace(100, 200, 11))),
)


def products(rng: np.random.Generator, components: int) -> tuple[np.ndarray, list[np.ndarray]]:
    sizes = (20, 4, 2, 6, 10)
    return rng.dirichlet(np.ones(components)), [rng.dirichlet(np.ones(size), components) for size in sizes]


def test_chances_and_moments_are_those_of_the_products() -> None:
    weights, tables = products(np.random.default_rng(0), 4)
    own = OwnComponents(SCHEMA, FAMILIES)
    found = start_from(MixtureModel([own], 4), weights, tables, CODINGS)
    order = np.argsort(found[:, 0])
    np.testing.assert_allclose(np.exp(found[order, 0]) / np.exp(found[:, 0]).sum(), np.sort(weights), rtol=1e-6)
    tables = [table[np.argsort(weights)] for table in tables]
    at = {name: found[order][:, 1:][:, place] for name, place in own.places.items()}
    city = tables[1][:, :3] / tables[1][:, :3].sum(axis=1, keepdims=True)
    np.testing.assert_allclose(np.exp(at["city"]) / 3, city, atol=1e-3)
    np.testing.assert_allclose(1 / (1 + np.exp(-at["member"][:, 0])), tables[2][:, 1], atol=1e-3)
    np.testing.assert_allclose(np.exp(at["income"]) / 6, tables[3], atol=1e-3)
    middles = np.linspace(0.05, 0.95, 10)
    np.testing.assert_allclose(at["height"][:, 0], tables[4] @ middles, atol=2e-3)
    shapes = np.exp(at["age"])
    np.testing.assert_allclose(shapes[:, 0] / shapes.sum(axis=1), tables[0] @ np.linspace(0.025, 0.975, 20), atol=4e-3)


def test_components_that_are_alike_are_merged() -> None:
    rng = np.random.default_rng(1)
    _, tables = products(rng, 3)
    copies = rng.integers(0, 3, 30)
    copies[:3] = range(3)
    near = [np.abs(table[copies] + 1e-3 * rng.normal(size=(30, table.shape[1]))) for table in tables]
    near = [table / table.sum(axis=1, keepdims=True) for table in near]
    found, centres = merged(np.full(30, 1 / 30), near, 3)
    np.testing.assert_allclose(np.sort(found), np.sort(np.bincount(copies) / 30), atol=1e-9)
    for table, centre in zip(tables, centres, strict=True):
        distance = np.abs(table[:, None] - centre[None]).sum(axis=2).min(axis=1)
        assert distance.max() < 0.02


def test_a_mixture_of_one_component_has_the_chances_of_all() -> None:
    weights, tables = products(np.random.default_rng(2), 7)
    found, centres = merged(weights, tables, 1)
    np.testing.assert_allclose(found, [1.0])
    for table, centre in zip(tables, centres, strict=True):
        np.testing.assert_allclose(centre[0], weights @ table)


def test_too_few_components_are_refused() -> None:
    weights, tables = products(np.random.default_rng(3), 2)
    with raises(StudyError, "ST503", "2", "3"):
        merged(weights, tables, 3)
