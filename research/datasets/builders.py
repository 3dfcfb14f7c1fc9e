"""From a data file to one Arrow table with the columns that the catalogue declares."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
from numpy.typing import NDArray

from research.datasets import catalog

Built = tuple[pa.Table, NDArray[np.bool_] | None]
"""All columns of a data set, and which rows its publisher set aside for testing."""


def breast_cancer(path: Path | None) -> Built:
    """The copy inside scikit-learn."""
    from sklearn.datasets import load_breast_cancer

    bunch = load_breast_cancer()
    columns = {str(name): bunch.data[:, place] for place, name in enumerate(bunch.feature_names)}
    return pa.table({**columns, "malignant": bunch.target == 0}), None


def adult(path: Path) -> Built:
    """Question marks become missing cells."""
    table = _with(pa.parquet.read_table(path), "female", "sex", "Female")
    table = _with(table, "high-income", "income", ">50K")
    for name in ("workclass", "occupation", "native-country"):
        cells = table[name]
        known = pc.if_else(pc.equal(cells, "?"), pa.scalar(None, cells.type), cells)
        table = table.set_column(table.column_names.index(name), name, known)
    return table, _tests(table)


def credit_default(path: Path) -> Built:
    """SEX 2 is female in the codebook."""
    table = _with(pa.parquet.read_table(path), "female", "SEX", 2)
    return _with(table, "default", "default payment next month", 1), None


def dutch_census(path: Path) -> Built:
    """Codes stay as published."""
    table = _with(pa.parquet.read_table(path), "female", "sex", "female")
    return _with(table, "high-level", "occupation", 1), None


def acs_income(path: Path) -> Built:
    """Occupation and birthplace codes become their published groups."""
    table = pa.parquet.read_table(path)
    table = _with(table, "female", "SEX", 2)
    table = _with(table, "high-income", "PINCP_gt_50k", 1)
    table = table.append_column("occupation-group", _grouped(table["OCCP"], catalog.OCCUPATION_GROUPS))
    return table.append_column("birth-region", _grouped(table["POBP"], catalog.BIRTH_REGIONS)), None


def kdd(path: Path) -> Built:
    """KDD-99 and NSL-KDD: anything but normal traffic is an attack."""
    table = pa.parquet.read_table(path)
    table = table.append_column("attack", pc.not_equal(table["label"], "normal"))
    return table, _tests(table)


def citeseer(path: Path) -> Built:
    """The papers that have a topic."""
    from scipy.sparse import load_npz

    words = load_npz(path).toarray()
    with np.load(path, allow_pickle=False) as stored:
        topics, tests = stored["y"], np.zeros(len(words), bool)
        tests[stored["test_idx"]] = True
    labelled = topics >= 0
    return _columns(words[labelled], catalog.citeseer_words(), "topic", topics[labelled]), tests[labelled]


def _columns(cells: NDArray[Any], names: list[str], label: str, classes: NDArray[Any]) -> pa.Table:
    by_column = np.ascontiguousarray(cells.T)
    columns = {name: pa.array(column) for name, column in zip(names, by_column, strict=True)}
    return pa.table({**columns, label: pa.array(classes.astype(np.int64))})


def _with(table: pa.Table, name: str, source: str, value: str | int) -> pa.Table:
    return table.append_column(name, pc.equal(table[source], pa.scalar(value, table[source].type)))


def _tests(table: pa.Table) -> NDArray[np.bool_]:
    return np.array(pc.equal(table["split"], "test").to_numpy(), dtype=np.bool_)


def _grouped(codes: Any, groups: Mapping[str, int]) -> pa.Array:
    starts = np.array(list(groups.values()))
    place = np.searchsorted(starts, codes.to_numpy(), side="right") - 1
    return pa.array(np.array(list(groups))[place])
