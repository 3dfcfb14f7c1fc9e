"""The files behind the named data sets: where they are, and whether they are what they should be."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from colonnade.errors import DatasetError

DATA_VARIABLE = "COLONNADE_DATA"


@dataclass(frozen=True)
class DataFile:
    """One file, known by its checksum. ``origin`` says who first published the data.

    The files are repackaged (Parquet, compressed NumPy) from the originals, so no original publisher serves
    these exact bytes; a copy comes from a mirror that the user names.
    """

    name: str
    size: int
    sha256: str
    origin: str


ADULT = DataFile(
    "adult.parquet",
    395_104,
    "28aa35b812a76e6c26700a83bd0582dd629c3e437280124c818ebaa5b596bd13",
    "UCI Machine Learning Repository, Adult",
)
CREDIT = DataFile(
    "credit_default.parquet",
    1_219_303,
    "17273be978b063b097d0a10be56ce98f2c5aff8e51837171db009fd9145e26ca",
    "UCI Machine Learning Repository, Default of credit card clients",
)
DUTCH = DataFile(
    "dutch_census_2001.parquet",
    160_393,
    "6a2e472bc50da99a2e9d200f0d9f4185b1e94841b2878e268d0a02201b85fa4c",
    "Statistics Netherlands, virtual census 2001",
)
MNIST = DataFile(
    "mnist.npz",
    11_490_519,
    "06af5dfe73b70e3bc1c36439982b18a8d76803db9b544f6fdf838a37fbb01b64",
    "LeCun, Cortes and Burges, MNIST",
)
NSL_KDD = DataFile(
    "nsl_kdd.parquet",
    1_993_403,
    "5652688fe83918b4e0aa13de185d55b4dd4518952b8f764f54d7dabc4a7562b8",
    "Canadian Institute for Cybersecurity, NSL-KDD",
)
KDD_99 = DataFile(
    "kddcup99_10pct.parquet",
    2_297_036,
    "52c90d6860e2a57b0d06c97dc787588b07f2a652af6247bd56ff814195941fa6",
    "UCI KDD archive, KDD Cup 1999",
)
CITESEER = DataFile(
    "citeseer.npz",
    203_241,
    "3ff7bc2b9d20beef3e6613fcf34f8ab3aae32a9c523f4064844d480c69149ae0",
    "LINQS, CiteSeer (Planetoid version)",
)
ACS_INCOME = DataFile(
    "acsincome_2018_co_ne.parquet",
    219_038,
    "9cdf7d5398bc7a55dec0dcd040c1763f45e92a7c3cc4834211b1acc46210014c",
    "US Census Bureau, American Community Survey PUMS 2018",
)
CIFAR_10 = DataFile(
    "cifar10_subset.npz",
    33_911_058,
    "5ab35b2792943e4ceb0bee7e0550380e986c084323a6a90cf2d6d85597b5ef2d",
    "Krizhevsky, CIFAR-10",
)

_verified: set[tuple[str, int, int, str]] = set()


def data_folder(folder: str | Path | None) -> Path | None:
    """The folder given, or the one that COLONNADE_DATA names."""
    named = folder or os.environ.get(DATA_VARIABLE)
    return Path(named) if named else None


def located(file: DataFile, dataset: str, folder: str | Path | None) -> Path:
    """The verified path of a file; the error names both ways to get it."""
    place = data_folder(folder)
    ways = (
        f"set {DATA_VARIABLE} to the folder that holds it, or fetch a copy with "
        f"fetch_dataset({dataset!r}, folder, url=...) (origin: {file.origin})"
    )
    if place is None:
        raise DatasetError(f"data set {dataset!r} needs {file.name}, but no data folder is set; {ways}")
    path = place / file.name
    if not path.is_file():
        raise DatasetError(f"data set {dataset!r} needs {file.name}, which is not in {place}; {ways}")
    if not matches(path, file):
        raise DatasetError(
            f"{path} is damaged or another version: its checksum is not the expected {file.sha256[:12]}...; "
            f"delete it, then {ways}"
        )
    return path


def matches(path: Path, file: DataFile) -> bool:
    """Whether a file has the expected size and checksum; remembered while size and time stay the same."""
    stat = path.stat()
    seen = (str(path.resolve()), stat.st_size, stat.st_mtime_ns, file.sha256)
    if seen in _verified:
        return True
    if stat.st_size != file.size:
        return False
    with path.open("rb") as opened:
        good = hashlib.file_digest(opened, "sha256").hexdigest() == file.sha256
    if good:
        _verified.add(seen)
    return good
