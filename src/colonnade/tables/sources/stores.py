"""Object stores and other file systems that Arrow reads: which address means which, and what may stand in one."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from colonnade.errors import DataError
from colonnade.tables.arrow import pa
from colonnade.tables.sources.stored import StoredFile
from colonnade.tables.wording import listed

_OPTIONS = {
    "s3": ("region", "endpoint_override", "scheme"),
    "gs": ("endpoint_override", "scheme"),
    "gcs": ("endpoint_override", "scheme"),
    "abfs": (),
    "abfss": (),
    "hdfs": (),
}
"""The schemes that are read, and what may be said after the question mark of an address: never a secret."""
_ENDINGS = {"csv", "tsv", "txt", "parquet", "pq"}
_ENVIRONMENT = "credentials come from the environment alone, such as AWS_ACCESS_KEY_ID, and never stand in an address"


def is_address(given: str) -> bool:
    """Whether a text is the address of a store and not a path of this machine."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", given) is not None


def shown(address: str) -> str:
    """An address as errors and pages may have it: scheme, bucket and path."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def check_address(address: str) -> None:
    """Raise if an address has a scheme that is not read, or holds a credential."""
    try:
        parts = urlsplit(address)
        options = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        raise DataError("the address of the table is not one; write it as s3://BUCKET/FOLDER/") from None
    if parts.scheme not in _OPTIONS:
        raise DataError(f"{parts.scheme}:// is not read; the addresses that are begin with {listed(sorted(_OPTIONS))}")
    # abfss://CONTAINER@ACCOUNT... names no secret; everywhere else what stands before the @ is a user or a password.
    before = parts.netloc.rpartition("@")[0]
    if ":" in before or (before and not parts.scheme.startswith("abfs")):
        raise DataError(f"{shown(address)}: the address holds a credential; {_ENVIRONMENT}")
    allowed = _OPTIONS[parts.scheme]
    if beyond := [key for key, _ in options if key not in allowed]:
        may = f"an address may say {listed(allowed)}" if allowed else "an address of this kind says nothing after a ?"
        raise DataError(f"{shown(address)}: {beyond[0]!r} is not taken from an address; {may}, and {_ENVIRONMENT}")


def listing(address: str) -> list[StoredFile]:
    """The files that an address means, in the order of their paths: one, those of a folder, or those of a pattern."""
    check_address(address)
    parts = urlsplit(address)
    folder, pattern = _split(parts.path)
    query = f"?{parts.query}" if parts.query else ""
    with asking(shown(address)):
        store, root = pa.fs.FileSystem.from_uri(f"{parts.scheme}://{parts.netloc}{folder}{query}")
        found = store.get_file_info(root)
        if found.type == pa.fs.FileType.File and pattern is None:
            return [_file(store, found)]
        selector = pa.fs.FileSelector(root, recursive=True, allow_not_found=True)
        inside = [each for each in store.get_file_info(selector) if each.type == pa.fs.FileType.File]
    prefix = root.rstrip("/") + "/"
    wanted = None if pattern is None else matcher(pattern)
    kept = [
        each
        for each in inside
        if (wanted is None and holds_rows(each.path.removeprefix(prefix)))
        or (wanted is not None and wanted.fullmatch(each.path.removeprefix(prefix)))
    ]
    return sorted((_file(store, each) for each in kept), key=lambda file: file.path)


def holds_rows(path: str) -> bool:
    """Whether a file of a folder is taken for a table: by its ending, and not what writers of data sets keep there."""
    inner = path.split("/")
    return not any(part.startswith(("_", ".")) for part in inner) and bool(_ENDINGS & set(inner[-1].split(".")[1:]))


def has_pattern(path: str) -> bool:
    """Whether a path has signs that stand for others."""
    return any(sign in path for sign in "*?[")


def matcher(pattern: str) -> re.Pattern[str]:
    """A pattern as a regular expression: ``*`` stands for signs within a name, ``**`` for any folders."""
    parts = pattern.split("/")
    found = ["(?:[^/]+/)*" if part == "**" else fnmatch.translate(part)[4:-3].replace(".*", "[^/]*") for part in parts]
    text = ""
    for part, piece in zip(parts, found, strict=True):
        text += piece if part == "**" else f"{piece}/"
    return re.compile(text.removesuffix("/"), re.DOTALL)


def _split(path: str) -> tuple[str, str | None]:
    """The folder before the first part with a pattern, and the pattern."""
    parts = path.split("/")
    for place, part in enumerate(parts):
        if has_pattern(part):
            return "/".join(parts[:place]), "/".join(parts[place:])
    return path, None


def _file(store: Any, found: Any) -> StoredFile:
    return StoredFile(store, found.path, int(found.size or 0), int(found.mtime_ns or 0))


@contextmanager
def asking(name: str) -> Iterator[None]:
    """Turn an error of a store into a sentence: its own words may hold an address with more than ours shows."""
    try:
        yield
    except (ImportError, NotImplementedError, AttributeError):
        raise DataError(f"{name}: this pyarrow was built without this kind of store; install another build") from None
    except (OSError, ValueError, pa.ArrowException):
        raise DataError(
            f"{name}: the store cannot be asked; check the address, the network, and the credentials in the environment"
        ) from None
