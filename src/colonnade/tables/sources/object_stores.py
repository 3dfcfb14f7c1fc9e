"""Object stores and other file systems that Arrow reads: what an address means, and the files of a store."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from colonnade.disk.reading import shorten
from colonnade.errors import DataError
from colonnade.tables.cell_parsing import itemise, pa

_VERSIONS = ("etag", "generation", "versionid")


@dataclass(frozen=True)
class StoredFile:
    """A file in a store, as its listing told of it."""

    store: Any
    path: str
    size: int
    changed: int
    """When, in nanoseconds, as the store says."""

    @property
    def suffix(self) -> str:
        """The last ending of the name."""
        return PurePosixPath(self.path).suffix

    @property
    def suffixes(self) -> list[str]:
        """All endings of the name."""
        return PurePosixPath(self.path).suffixes

    def stream(self) -> Any:
        """The content from its beginning, decompressed as the name's ending says."""
        return self.store.open_input_stream(self.path)

    def file(self) -> Any:
        """The content, read at any place."""
        return self.store.open_input_file(self.path)

    def version(self) -> tuple[bytes, ...]:
        """What the store says of this very content, such as an ETag; nothing where it says nothing, or has no file."""
        try:
            with self.store.open_input_stream(self.path, compression=None) as opened:
                said = opened.metadata() or {}
        except OSError:
            return ()
        return tuple(bytes(value) for name, value in sorted(said.items()) if name.lower() in _VERSIONS)

    def state(self) -> tuple[int, int, tuple[bytes, ...]] | None:
        """Size, time and version as the store says them now; ``None`` if it has no such file, or does not answer."""
        try:
            found = self.store.get_file_info(self.path)
        except OSError:
            return None
        return int(found.size or 0), int(found.mtime_ns or 0), self.version()

    def start(self, size: int) -> bytes:
        """The first bytes as they are stored."""
        with self.file() as opened:
            found: bytes = opened.read(min(size, self.size))
        return found


_OPTIONS = {
    "s3": ("region", "endpoint_override", "scheme"),
    "gs": ("endpoint_override", "scheme"),
    "gcs": ("endpoint_override", "scheme"),
    "abfs": ("endpoint_override", "scheme"),
    "abfss": ("endpoint_override", "scheme"),
    "hdfs": (),
}
"""The schemes that are read, and what may be said after the question mark of an address: never a secret."""
_TEXTS = {"csv", "tsv", "txt"}
_ENDINGS = _TEXTS | {"parquet", "pq"}
_COMPRESSED = {"gz", "bz2", "zst", "lz4", "br"}
_PATIENCE = "retry_limit_seconds=30"  # a store of Google that cannot be reached is asked for 15 minutes otherwise
_UNQUOTED = "/%:=+,;~!$&'()@"
_ENVIRONMENT = "credentials come from the environment alone, such as AWS_ACCESS_KEY_ID, and never stand in an address"


def is_address(given: str) -> bool:
    """Whether a text is the address of a store and not a path of this machine."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", given) is not None


def redact_address(address: str) -> str:
    """An address as errors and pages may have it: scheme, bucket and path, or the scheme where it may hold a secret."""
    parts = _split_address(address)
    if parts is None or _may_hold_secret(parts):
        return f"{address.partition('://')[0]}://..."
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def check_address(address: str) -> None:
    """Raise if an address has a scheme that is not read, or holds a credential."""
    parts = _split_address(address)
    if parts is None:
        raise DataError("the address of the table is not one; write it as s3://BUCKET/FOLDER/ [DA249]")
    if parts.scheme not in _OPTIONS:
        raise DataError(
            f"{parts.scheme}:// is not read; the addresses that are begin with {itemise(sorted(_OPTIONS))} [DA250]"
        )
    if _may_hold_secret(parts):
        raise DataError(f"{redact_address(address)}: the address holds a credential; {_ENVIRONMENT} [DA251]")
    allowed = _OPTIONS[parts.scheme]
    if beyond := [key for key, _ in parse_qsl(parts.query, keep_blank_values=True) if key not in allowed]:
        may = f"an address may say {itemise(allowed)}" if allowed else "an address of this kind says nothing after a ?"
        raise DataError(
            f"{redact_address(address)}: {shorten(beyond[0], 40)!r} is not taken from an address; {may}, and "
            f"{_ENVIRONMENT} [DA252]"
        )
    if "#" in address:
        raise DataError(f"{redact_address(address)}: write the sign # in an address as %23 [DA253]")
    azure = parts.scheme.startswith("abfs")
    if "@" not in parts.netloc if azure else not parts.netloc and parts.scheme != "hdfs":
        form = "CONTAINER@ACCOUNT.dfs.core.windows.net" if azure else "BUCKET"
        wanted = f"{parts.scheme}://{form}/FOLDER/"
        raise DataError(f"{redact_address(address)}: the address names no bucket; write it as {wanted} [DA254]")


def _split_address(address: str) -> SplitResult | None:
    """The parts of an address; ``None`` if it is none."""
    try:
        parts = urlsplit(address)
        parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        return None
    return parts


def _may_hold_secret(parts: SplitResult) -> bool:
    """Whether an address may hold a user, a password or a key.

    ``abfss://CONTAINER@ACCOUNT...`` names no secret, and ``gs://anonymous@BUCKET`` says that there is none. A key may
    have a slash in it, and then the @ is in the path; but no bucket has a colon, and after that of a server comes a
    number.
    """
    before, _, host = parts.netloc.rpartition("@")
    _, colon, port = host.partition(":")
    harmless = parts.scheme.startswith("abfs") or (parts.scheme in ("gs", "gcs") and before == "anonymous")
    served = parts.scheme == "hdfs"
    return (
        ":" in before
        or bool(before and not harmless)
        or bool(colon and not (served and port.isdigit()))
        or any("@" in value for _, value in parse_qsl(parts.query))
    )


def list_stored_files(address: str) -> list[StoredFile]:
    """The files that an address means, in the order of their paths: one, those of a folder, or those of a pattern."""
    check_address(address)
    parts = urlsplit(address)
    folder, pattern = _split_pattern(parts.path)
    with store_errors(redact_address(address)):
        store, root = _connect_store(parts, folder)
        found = store.get_file_info(root)
        if found.type == pa.fs.FileType.File and pattern is None:
            return [_stored_file(store, found)]
        selector = pa.fs.FileSelector(root, recursive=True, allow_not_found=True)
        inside = [each for each in store.get_file_info(selector) if each.type == pa.fs.FileType.File]
    prefix = root.rstrip("/") + "/"
    fits = is_table_file if pattern is None else _path_filter(unquote(pattern))
    kept = [each for each in inside if fits(each.path.removeprefix(prefix))]
    return sorted((_stored_file(store, each) for each in kept), key=lambda file: file.path)


def open_store(address: str) -> Any:
    """The store that an address means, by the credentials of this process's environment."""
    check_address(address)
    parts = urlsplit(address)
    with store_errors(redact_address(address)):
        return _connect_store(parts, _split_pattern(parts.path)[0])[0]


def _connect_store(parts: SplitResult, folder: str) -> tuple[Any, str]:
    """The store of an address, and the path of a folder in it."""
    if parts.scheme.startswith("abfs"):
        return _connect_azure(parts, unquote(folder))
    # What a person writes as it is, such as a blank, is written as addresses have it.
    query = f"{parts.query}&{_PATIENCE}" if parts.scheme in ("gs", "gcs") else parts.query
    found: tuple[Any, str] = pa.fs.FileSystem.from_uri(
        f"{parts.scheme}://{parts.netloc}{quote(folder, _UNQUOTED)}?{query}"
    )
    return found


def _connect_azure(parts: SplitResult, folder: str) -> tuple[Any, str]:
    """The store that an address of Azure means, and the path in it.

    Arrow would take a key of Azure from the address alone, and not from the environment. Without a key it asks Azure's
    own ways to sign in, and ends the whole process if it should do so without TLS.
    """
    container, _, host = parts.netloc.rpartition("@")
    account, _, domain = host.partition(".")
    options = dict(parse_qsl(parts.query))
    keys = {"account_key": os.environ.get("AZURE_STORAGE_KEY"), "sas_token": os.environ.get("AZURE_STORAGE_SAS_TOKEN")}
    given = next(({name: value} for name, value in keys.items() if value), {})
    if options.get("scheme", "https") != "https" and not given:
        raise DataError(
            f"{redact_address(parts.geturl())}: without TLS, Azure's store is asked only with AZURE_STORAGE_KEY [DA255]"
        )
    for kind in ("blob", "dfs"):
        if at := options.get("endpoint_override") or (domain and f".{kind}.{domain.partition('.')[2]}"):
            given[f"{kind}_storage_authority"] = at
        given[f"{kind}_storage_scheme"] = options.get("scheme", "https")
    return pa.fs.AzureFileSystem(account_name=account, **given), f"{container}{folder}".rstrip("/")


def is_table_file(path: str) -> bool:
    """Whether a file of a folder is taken for a table: by its ending, and not what writers of data sets keep there."""
    *_, last, end = ("", "", *path.rpartition("/")[2].lower().split(".")[1:])
    return not is_hidden(path) and (end in _ENDINGS or (last in _TEXTS and end in _COMPRESSED))


def is_hidden(path: str, pattern: str = "") -> bool:
    """Whether a file is one that writers of data sets keep for themselves, and that a pattern does not name."""
    named = {part[:1] for part in pattern.split("/")}
    return any(part.startswith(("_", ".")) and part[0] not in named for part in path.split("/"))


def _path_filter(pattern: str) -> Callable[[str], bool]:
    wanted = compile_pattern(pattern)
    return lambda path: wanted.fullmatch(path) is not None and not is_hidden(path, pattern)


def has_pattern(path: str) -> bool:
    """Whether a path has signs that stand for others."""
    return any(sign in path for sign in "*?[")


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """A pattern as a regular expression: ``*`` stands for signs within a name, ``**`` for any folders."""
    parts = pattern.split("/")
    found = ["(?:[^/]+/)*" if part == "**" else fnmatch.translate(part)[4:-3].replace(".*", "[^/]*") for part in parts]
    text = ""
    for part, piece in zip(parts, found, strict=True):
        text += piece if part == "**" else f"{piece}/"
    return re.compile(text.removesuffix("/"), re.DOTALL)


def _split_pattern(path: str) -> tuple[str, str | None]:
    """The folder before the first part with a pattern, and the pattern."""
    parts = path.split("/")
    for place, part in enumerate(parts):
        if has_pattern(part):
            return "/".join(parts[:place]), "/".join(parts[place:])
    return path, None


def _stored_file(store: Any, found: Any) -> StoredFile:
    return StoredFile(store, found.path, int(found.size or 0), int(found.mtime_ns or 0))


@contextmanager
def store_errors(name: str) -> Iterator[None]:
    """Turn an error of a store into a sentence: its own words may hold an address with more than ours shows."""
    try:
        yield
    except (ImportError, NotImplementedError, AttributeError, TypeError):
        raise DataError(
            f"{name}: this pyarrow was built without this kind of store; install another build [DA256]"
        ) from None
    except (OSError, ValueError, pa.ArrowException):
        raise DataError(
            f"{name}: the store cannot be asked; check the address, the network, and the credentials in "
            "the environment [DA257]"
        ) from None
