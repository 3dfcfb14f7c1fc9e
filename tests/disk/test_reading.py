"""What is read at all: regular files of a bounded size, whose nesting, keys and numbers are bounded too."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from colonnade.disk import reading, writing
from colonnade.errors import (
    ColonnadeError,
    DataError,
    IdentityError,
    LedgerError,
    PrivacyError,
    SchemaError,
    StudyError,
)
from colonnade.federation.proposal_store import HubFile
from colonnade.federation.scores.kept_answers import AnswersFile
from colonnade.models import Estimator
from colonnade.privacy import Ledger
from colonnade.privacy.observers import Budget, check_epsilon
from colonnade.study import PartyConfig, Study
from colonnade.study.record import read_facts
from colonnade.tables import Schema, draft_schema, read_table
from colonnade.wire import Certificate, Identity
from tests.support.errors import refused

from .test_damaged_files import DEEP, FIXTURES

KEY_OF_200_KB = ".".join("a" * 100_000)


READERS = {
    "study": (Study.load, StudyError),
    "party": (PartyConfig.load, StudyError),
    "schema": (Schema.load, SchemaError),
    "model": (Estimator.load, StudyError),
    "kept": (lambda path: Estimator.load(FIXTURES / "models" / "glm.json").load_kept(path), StudyError),
    "certificate": (Certificate.load, IdentityError),
    "key": (lambda path: Identity.load(path, FIXTURES / "nowhere"), IdentityError),
    "table": (lambda path: read_table(path, FIXTURES / "studies" / "schemas" / "shop.toml"), DataError),
    "draft": (draft_schema, DataError),
    "ledger": (Ledger, LedgerError),
}


@pytest.mark.parametrize("kind", READERS)
def test_what_is_no_file_is_refused_at_once_and_named(kind, tmp_path):
    read, error = READERS[kind]
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
    for what in ("pipe", "folder", "socket", "device"):
        path = Path("/dev/zero") if what == "device" else tmp_path / what
        # before a key its certificate is read, which is not there
        refused(error, () if kind == "key" else (path, what), read, path)
    _, certificate = Identity.create("bank").save(tmp_path)
    refused(IdentityError, ("VA017", "pipe"), Identity.load, tmp_path / "pipe", certificate)


SCHEMA_OF_BANK = "schemas/bank.toml"
CHANGED = {
    "an endless schema": (SCHEMA_OF_BANK, "/dev/zero", SchemaError, ("VA017", "/dev/zero")),
    **{
        f"a path {name[:9]!r} that no file can have": (
            SCHEMA_OF_BANK,
            name,
            StudyError,
            ("VA196|VA197", "parties.bank.schema"),
        )
        for name in ("a\\u0000b", "\\u001b[2J", " ", "x" * 300)
    },
    "an epsilon of 400 digits": ("epsilon = 4.0", f"epsilon = 1{'0' * 400}", StudyError, ("PR065", "budget.epsilon")),
}


@pytest.mark.parametrize("change", CHANGED)
def test_a_study_that_names_what_cannot_be_is_refused_with_the_key(change, tmp_path):
    old, new, error, said = CHANGED[change]
    (tmp_path / "study.toml").write_text((FIXTURES / "studies" / "pca-moments.toml").read_text().replace(old, new))
    message = refused(error, said, Study.load, tmp_path / "study.toml")
    assert "study.toml" in message or error is SchemaError


def test_paths_and_epsilons_that_cannot_be(tmp_path):
    for name in ("a\0b", "x" * 300):
        refused(ColonnadeError, (), Schema.load, tmp_path / name)
    for epsilon in (10**400, float("inf"), float("nan"), 0, -1):
        refused(PrivacyError, "PR065", check_epsilon, epsilon)
    assert Budget("analyst", 1e308, 1e-5).epsilon == 1e308


def test_a_file_that_is_too_large_is_not_read(tmp_path):
    path = tmp_path / "large.toml"
    with path.open("wb") as file:
        file.truncate(reading.MAX_WRITTEN_BYTES + 1)  # it takes no room
    refused(SchemaError, ("VA006", "67,108,864", "large.toml"), Schema.load, path)
    refused(IdentityError, ("VA006", "1,048,576"), Certificate.load, path)
    assert reading.read_bytes(path, reading.MAX_WRITTEN_BYTES + 1)[:2] == b"\0\0"


DAMAGED_TOML = {
    "deep": ("x = " + "[" * DEEP + "]" * DEEP, "VA011|VA016"),
    "deep enough to be parsed": ("x = " + "[" * 80 + "]" * 80, "VA011|VA016"),
    "digits": (f"x = 1{'0' * 5000}", "VA013|VA015"),
    "hexadecimal digits": (f"x = [{{ y = 0x{'f' * 5000} }}]", "VA013|VA015"),
    "octal digits": (f"x = 0o{'7' * 5000}", "VA013|VA015"),
    "binary digits": (f"x = 0b{'1' * 5000}", "VA013|VA015"),
    "a text that never ends": ('\\"""\n' * 20_000 + "\\", "SC076|ST599"),
    "a text that never ends, with quotes": ('x = """' + '"" \\' * 20_000, "SC076|ST599"),
    "a literal text that never ends": ("x = '''" + "'' \n" * 20_000, "SC076|ST599"),
    "dotted": (f"{KEY_OF_200_KB} = 1", ("VA009", "32")),
    "dotted header": (f"[{KEY_OF_200_KB}]", ("VA009", "32")),
    "dotted, inline": (f"x = {{ y = '''a''''', {KEY_OF_200_KB} = 1 }}", ("VA009", "32")),
    "dotted, quoted": ('x = """a"""""\n' + " . ".join(['"a.b"', "'c'"] * 50_000) + " = 1", ("VA009", "32")),
}


@pytest.mark.parametrize("damage", DAMAGED_TOML)
@pytest.mark.parametrize("kind", ["study", "party", "schema"])
def test_toml_that_would_take_all_the_time_or_the_stack_is_refused(kind, damage, tmp_path):
    read, error = READERS[kind]
    content, why = DAMAGED_TOML[damage]
    (tmp_path / "damaged.toml").write_text(content)
    refused(error, (why, "damaged.toml"), read, tmp_path / "damaged.toml")


def test_texts_numbers_and_keys_of_some_parts_are_no_long_keys():
    for text in (
        f'x = "{KEY_OF_200_KB}"',
        f"x = '''\n{KEY_OF_200_KB}'''''",
        f"# {KEY_OF_200_KB}\nx = 1",
        f"x = [{', '.join(['0.5'] * 1000)}]",
        ".".join("abcdefghijklmnopqrstuvwxyzABCDEF") + " = 1",
    ):
        assert reading.parse_toml(text)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("[" * DEEP + "]" * DEEP, "VA011|VA016"),
        ('{"a": ' * 80 + "1" + "}" * 80, "VA011|VA016"),
        ('{"a": 1' + "0" * 5000 + "}", "VA013|VA015"),
        ("9" * 700, "VA013|VA015"),
        ('{"a": NaN}', "VA013"),
        ('{"a": "\\ud800"}', "VA012"),
        ("\ufeff{}", ("ST097|ST577", "BOM")),
    ],
)
def test_json_that_cannot_be_used_is_refused(content, why, tmp_path):
    (tmp_path / "model.json").write_text(content, encoding="utf-8")
    refused(StudyError, (why, "model.json"), Estimator.load, tmp_path / "model.json")
    (tmp_path / "run.json").write_text(content, encoding="utf-8")
    refused(StudyError, (why, "run.json"), read_facts, tmp_path)


def changed(name: str, folder: Path, *path: object, value: object) -> Path:
    """A saved model in which one value is another."""
    content = json.loads((FIXTURES / "models" / f"{name}.json").read_text())
    holder = content
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    target = folder / f"{name}.json"
    target.write_text(json.dumps(content))
    return target


INSANE = [
    ("pca", ("learned", "components", 0, 0), 1e999),
    ("pca", ("learned", "count"), -3.0),
    ("pca", ("learned", "mean"), [0.0]),
    ("pca", ("learned", "noise_std"), True),
    ("pca", ("learned", "feature_names_in", 0), "other.column"),
    ("linear", ("learned", "coef", 0, 0), 10**400),
    ("linear", ("learned", "intercept"), []),
    ("linear", ("learned", "protection"), {}),
    ("linear", ("parameters", "label"), "bank.nothing"),
    ("logistic-classes", ("learned", "coef"), [[0.0]]),
    ("glm", ("learned", "plan", "senders", "shop", "drift"), -1.0),
    ("glm", ("learned", "plan", "active"), "shop"),
    ("glm", ("parameters", "release"), True),
    ("polynomial", ("learned", "values"), []),
    ("polynomial", ("learned", "gamma"), 2.5),
    ("prediction", ("learned", "ids"), ["one"]),
    ("prediction", ("learned", "scores", 0, 0), None),
    ("prediction", ("parameters", "to"), "nobody"),
    ("pca", ("schemas",), {}),
    ("pca", ("schemas", "bank"), 7),
    ("pca", ("privacy",), []),
    ("pca", ("privacy", "trust", "threshold"), 1e999),
    ("pca", ("privacy", "trust", "owners", 0), ["bank"]),
    ("pca", ("privacy", "rows", 0, "epsilon"), "much"),
    ("pca", ("privacy", "events", 0, "dimension"), 10**30),
    ("pca", ("privacy", "events", 0, "l1"), "1e999999999"),
]


@pytest.mark.parametrize(("name", "path", "value"), INSANE, ids=lambda part: str(part)[:60])
def test_a_model_whose_values_make_no_sense_is_refused(name, path, value, tmp_path):
    refused(
        (StudyError, PrivacyError),
        ("PR030|PR058|PR103|PR105|ST072|ST091|ST189|VA008|VA013", name),
        Estimator.load,
        changed(name, tmp_path, *path, value=value),
    )


def test_commands_end_with_the_code_of_the_docs(tmp_path, colonnade):
    (tmp_path / "study.toml").write_text(f"{KEY_OF_200_KB} = 1")
    assert "study.toml is not valid TOML" in colonnade("privacy", tmp_path / "study.toml", code=13)
    (tmp_path / "schema.toml").write_text("[" * DEEP)
    table = FIXTURES / "people" / "shop.csv"
    assert "schema.toml" in colonnade("schema", "check", table, tmp_path / "schema.toml", code=10)
    assert "/dev/zero: the schema cannot be read" in colonnade("schema", "check", table, "/dev/zero", code=10)
    os.mkfifo(tmp_path / "pipe.csv")
    assert "pipe.csv" in colonnade("schema", "draft", tmp_path / "pipe.csv", code=11)
    (tmp_path / "book.sqlite").write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    assert "book.sqlite" in colonnade("ledger", "verify", tmp_path / "book.sqlite", code=16)


# --- SQLite files are opened by several processes at once: whoever comes first is waited for


def test_the_log_waits_for_another_process_and_not_for_ever(tmp_path, monkeypatch):
    pauses = []
    for kind in (HubFile, AnswersFile):
        file = tmp_path / kind.name
        file.unlink(missing_ok=True)
        with closing(sqlite3.connect(file, isolation_level=None)) as other, closing(sqlite3.connect(file)) as base:
            other.execute("VACUUM")  # a file without tables, as another process that makes it has it at first
            other.execute("BEGIN IMMEDIATE")
            refused(sqlite3.OperationalError, "locked", writing.enable_write_ahead_log, base, -1.0)

            def pause(seconds: float, other=other) -> None:
                """The other process ends when somebody begins to wait for it."""
                pauses.append(seconds)
                other.execute("ROLLBACK")

            monkeypatch.setattr(writing, "time", SimpleNamespace(monotonic=time.monotonic, sleep=pause))
            assert kind(tmp_path).path == file
            assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert len(pauses) == 2, "SQLite itself does not wait here, whatever the timeout of the connection"
