"""From the files of the publishers to one table, or a few arrays, for each data set. No value is changed.

Blanks around words and the full stops after the labels of KDD-99 are dropped, column names and the column ``split``
are added.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray
from scipy import sparse

Arrays = dict[str, NDArray[Any]]


def _words(text: str) -> list[str]:
    return text.split()


_ADULT = _words("""
    age workclass fnlwgt education education-num marital-status occupation relationship race sex capital-gain
    capital-loss hours-per-week native-country income
""")
_KDD = _words("""
    duration protocol_type service flag src_bytes dst_bytes land wrong_fragment urgent hot num_failed_logins logged_in
    num_compromised root_shell su_attempted num_root num_file_creations num_shells num_access_files num_outbound_cmds
    is_host_login is_guest_login count srv_count serror_rate srv_serror_rate rerror_rate srv_rerror_rate same_srv_rate
    diff_srv_rate srv_diff_host_rate dst_host_count dst_host_srv_count dst_host_same_srv_rate dst_host_diff_srv_rate
    dst_host_same_src_port_rate dst_host_srv_diff_host_rate dst_host_serror_rate dst_host_srv_serror_rate
    dst_host_rerror_rate dst_host_srv_rerror_rate label
""")


def adult(files: Sequence[Path]) -> pa.Table:
    """Training and test rows; the test file has a line of names."""
    return _parts([_csv(files[0], _ADULT), _csv(files[1], _ADULT, skip=1)])


def credit_default(files: Sequence[Path]) -> pa.Table:
    """One file, with semicolons."""
    return _csv(files[0], delimiter=";")


def dutch_census(files: Sequence[Path]) -> pa.Table:
    """One file, as it is."""
    return _csv(files[0])


def nsl_kdd(files: Sequence[Path]) -> pa.Table:
    """An archive with a training and a test file."""
    names = [*_KDD, "difficulty"]
    with zipfile.ZipFile(files[0]) as archive:
        return _parts([_csv(io.BytesIO(archive.read(f"KDD{part}+.txt")), names) for part in ("Train", "Test")])


def kdd_99(files: Sequence[Path]) -> pa.Table:
    """Training and test rows, whose labels end with a full stop."""
    table = _parts([_csv(file, _KDD) for file in files])
    return table.set_column(table.column_names.index("label"), "label", pc.utf8_rtrim(table["label"], "."))


def acs_income(files: Sequence[Path]) -> pa.Table:
    """Features and labels of Colorado, then those of Nebraska; codes are written as numbers with a point."""
    parts = []
    for state, features, label in zip(("CO", "NE"), files[::2], files[1::2], strict=True):
        table = _csv(features)
        table = table.cast(pa.schema([(name, pa.int32()) for name in table.column_names]))
        table = table.append_column("PINCP_gt_50k", _csv(label)["PINCP"])
        parts.append(table.append_column("state", pa.array([state] * table.num_rows)))
    return pa.concat_tables(parts)


def citeseer(files: Sequence[Path]) -> Arrays:
    """Words (a sparse matrix), topics and citations, from the seven files of Planetoid in the order of their names.

    Papers keep Planetoid's numbers. Fifteen numbers of the test range belong to no paper: no words, topic -1.
    """
    allx, ally, graph, tx, ty, y = (_unpickled(files[place]) for place in (0, 1, 2, 4, 5, 6))
    tests = np.loadtxt(files[3], dtype=np.int64)
    known, count = allx.shape[0], int(tests.max()) + 1
    words = sparse.lil_matrix((count, allx.shape[1]), dtype=np.uint8)
    words[:known], words[tests] = allx, tx
    topics = np.full(count, -1)
    topics[:known], topics[tests] = (np.where(one.any(axis=1), one.argmax(axis=1), -1) for one in (ally, ty))
    pairs = {(min(one, other), max(one, other)) for one, others in graph.items() for other in others if one != other}
    stored = words.tocsr()
    stored.sort_indices()
    return {
        "format": np.array(b"csr"),
        "shape": np.array(stored.shape),
        "data": stored.data,
        "indices": stored.indices,
        "indptr": stored.indptr,
        "y": topics,
        "train_idx": np.arange(len(y)),
        "val_idx": np.arange(len(y), len(y) + 500),
        "test_idx": np.sort(tests),
        "edges": np.array(sorted(pairs)),
    }


def _csv(source: Path | io.BytesIO, names: Sequence[str] = (), *, skip: int = 0, delimiter: str = ",") -> pa.Table:
    """A table; surrounding blanks go, and every word stays a word, also "None" or "nan"."""
    raw = pa.csv.read_csv(
        str(source) if isinstance(source, Path) else source,
        pa.csv.ReadOptions(column_names=list(names) or None, skip_rows=skip),
        pa.csv.ParseOptions(delimiter=delimiter),
        pa.csv.ConvertOptions(null_values=[]),
    )
    return pa.table({name: _trimmed(raw[name]) for name in raw.column_names})


def _trimmed(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not pa.types.is_string(column.type):
        return column
    words = pc.utf8_trim_whitespace(column)
    try:
        return words.cast(pa.int64())
    except pa.ArrowInvalid:
        return words


def _parts(tables: Sequence[pa.Table]) -> pa.Table:
    """Training rows, then test rows, and which is which."""
    marked = [
        table.append_column("split", pa.array([split] * table.num_rows))
        for table, split in zip(tables, ("train", "test"), strict=True)
    ]
    return pa.concat_tables(marked, promote_options="permissive")


class _Arrays(pickle.Unpickler):
    """Reads pickles of numbers only: arrays, sparse matrices, dictionaries of lists."""

    _KNOWN = (
        *(("numpy", "ndarray"), ("numpy", "dtype"), ("numpy.core.multiarray", "_reconstruct")),
        *(("scipy.sparse.csr", "csr_matrix"), ("collections", "defaultdict"), ("__builtin__", "list")),
    )

    def find_class(self, module: str, name: str) -> Any:
        """The few kinds that Planetoid's files hold."""
        if (module, name) not in self._KNOWN:
            raise pickle.UnpicklingError(f"{module}.{name} has no place in a file of numbers")
        if module.startswith("scipy"):
            return sparse.csr_matrix
        if name == "_reconstruct":
            return np.ndarray.__reduce__(np.zeros(0))[0]
        return super().find_class("builtins" if module == "__builtin__" else module, name)


def _unpickled(file: Path) -> Any:
    with file.open("rb") as opened:
        return _Arrays(opened, encoding="latin1").load()
