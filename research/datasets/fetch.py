"""Downloading data sets: pooch fetches and checks the bytes, a converter makes the file, its values are checked."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pooch
import pyarrow as pa
import pyarrow.parquet
import requests

from colonnade.errors import DatasetError
from research.datasets import sources
from research.datasets.sources import DataFile

FETCHED: dict[str, DataFile] = {
    "adult": sources.ADULT,
    "credit-default": sources.CREDIT,
    "dutch-census": sources.DUTCH,
    "nsl-kdd": sources.NSL_KDD,
    "kdd-99": sources.KDD_99,
    "citeseer": sources.CITESEER,
    "acs-income": sources.ACS_INCOME,
    "mnist": sources.MNIST,
    "cifar-10": sources.CIFAR,
}
"""The data sets that are files, by name."""


def fetch_dataset(name: str, folder: str | Path | None = None) -> Path:
    """Download a data set, convert it, put its file into ``folder`` (or COLONNADE_DATA), and return its path."""
    if name not in FETCHED:
        raise DatasetError(f"there is nothing to download for {name!r}; what can be is {', '.join(FETCHED)} [DS004]")
    place = sources.data_folder(folder)
    if place is None:
        raise DatasetError(
            f"say where to put {FETCHED[name].name}: name a folder or set {sources.DATA_VARIABLE} [DS005]"
        )
    return fetch_file(FETCHED[name], place)


def fetch_file(file: DataFile, folder: Path, *, cache: Path | None = None) -> Path:
    """Make ``file`` in ``folder`` and return its path; one that is there and right is kept.

    ``cache`` keeps what was downloaded, so that a second attempt need not; by default it is pooch's for this user.
    """
    target = folder / file.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if target.is_file() and sources.matches(target, file):
            return target
        content = file.convert([_download(one, cache or pooch.os_cache("colonnade")) for one in file.downloads])
        if sources.digest(content) != file.content:
            raise DatasetError(f"{file.name} came out with other values than expected; please report this [DS006]")
        _store(content, target)
    except OSError as error:
        raise DatasetError(f"{file.name} cannot be stored in {folder}: {error.strerror or error} [DS007]") from None
    return target


def _download(one: sources.Download, cache: Path) -> Path:
    name = f"{one.sha256[:12]}-{one.url.rsplit('/', 1)[1]}"
    try:
        return Path(pooch.retrieve(one.url, f"sha256:{one.sha256}", fname=name, path=cache))
    except requests.RequestException as error:
        if error.response is not None:  # nobody has read it, so its connection is still open
            error.response.close()
        raise DatasetError(f"{one.url} cannot be fetched: {error} [DS008]") from None
    except ValueError:
        raise DatasetError(
            f"{one.url} is not the file that is known: its SHA-256 is not {one.sha256} [DS009]"
        ) from None


def _store(content: Any, target: Path) -> None:
    """Write beside the target, then rename: a file that is there is whole."""
    handle, partial = tempfile.mkstemp(dir=target.parent, suffix=target.suffix)
    os.close(handle)
    try:
        if isinstance(content, pa.Table):
            pa.parquet.write_table(content, partial, compression="zstd")
        else:
            np.savez_compressed(partial, **content)
        os.replace(partial, target)
    finally:
        Path(partial).unlink(missing_ok=True)
