"""Whatever tells about single people, or is one party's alone, can be read by nobody but the user who wrote it."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from colonnade.disk import writing
from colonnade.models import Estimator
from colonnade.models.serialization import replace_private, write_together
from colonnade.report.page import write_document
from colonnade.study.record import RunRecord, read_facts, write_facts
from colonnade.tables.sources.base import ExternalSort

from .test_damaged_files import FIXTURES


@pytest.fixture
def folder(tmp_path) -> Iterator[Path]:
    """A folder that was there before, and that everybody may look into; the process masks nothing."""
    tmp_path.chmod(0o777)
    before = os.umask(0)
    yield tmp_path
    os.umask(before)


def special_files(folder: Path) -> list[Path]:
    """What may stand where a file is to be written and is none: a pipe, a socket, a folder, a device by a link."""
    pipe, link, device, place = (folder / name for name in ("pipe", "link", "null", "folder"))
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    device.symlink_to(os.devnull)
    place.mkdir()
    with closing(socket.socket(socket.AF_UNIX)) as listening:
        listening.bind(str(folder / "socket"))
    return [pipe, link, device, place, folder / "socket"]


def test_only_regular_files_are_ever_replaced(folder: Path) -> None:
    for path in special_files(folder):
        before = os.lstat(path)
        for private in (False, True):
            for contents in ({path: b"x"}, {folder / "other": b"x", path: b"x"}):
                with pytest.raises(OSError, match="no regular file"):
                    writing.write_files(contents, private=private)
        assert (os.lstat(path).st_ino, os.lstat(path).st_mode) == (before.st_ino, before.st_mode)
        assert not (folder / "other").exists()
    kept, link = readable(folder / "kept"), folder / "regular"
    link.symlink_to(kept)
    writing.write_files({link: b"new"})
    assert link.read_bytes() == b"new"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def readable(path: Path, content: str = "before") -> Path:
    """A file of this name that everybody can read."""
    path.write_text(content)
    path.chmod(0o644)
    return path


@pytest.mark.parametrize("name", ["prediction", "prediction-untold", "glm-scores", "pca"])
def test_predictions_with_ids_are_private_and_a_model_for_everybody_is_not(name, folder):
    model, target = Estimator.load(FIXTURES / "models" / f"{name}.json"), folder / "model.json"
    for _ in range(2):
        model.save(target)
        assert mode(target) == (0o666 if name == "pca" else 0o600)
        assert [each.name for each in folder.iterdir()] == ["model.json"]
        target.chmod(0o666)  # the second time in place of a file for everybody


def test_kept_weights_are_private_also_in_place_of_others(folder):
    model = Estimator.load(FIXTURES / "models" / "glm.json")
    kept = FIXTURES / "models" / "glm.kept.bank.json"
    model.load_kept(kept)
    assert mode(model.save_kept(readable(folder / "bank.json", kept.read_text()), "bank")) == 0o600


def test_the_record_of_a_run_is_private_and_its_statement_is_not(folder):
    record = RunRecord(folder, participant="bank", study="s", digest="d")
    record.record_public("something")
    record.statement(Estimator.load(FIXTURES / "models" / "pca.json").privacy_)
    record.finish()
    write_facts(folder / "run.json", read_facts(folder) | {"more": 1})
    names = ("run.json", "events.jsonl", "privacy.json")
    assert [mode(folder / name) for name in names] == [0o600, 0o600, 0o666]
    again = RunRecord(folder, participant="bank", study="s", digest="d")
    again.record_public("something")
    assert (mode(folder / "events.jsonl"), mode(folder / "earlier" / "1")) == (0o600, 0o700)


def test_reports_drafts_and_arrays_are_private_and_an_audit_is_not(folder, colonnade):
    assert mode(write_document(readable(folder / "report.html"), "<p>", private=True)) == 0o600
    assert mode(write_document(folder / "audit.html", "<p>")) == 0o666
    colonnade("schema", "draft", FIXTURES / "people" / "shop.csv", "--out", folder / "shop.toml")
    assert mode(folder / "shop.toml") == 0o600
    write_together({folder / "model.json": b"{}", folder / "model.npz": b"arrays"}, private=True)
    assert {mode(folder / name) for name in ("model.json", "model.npz")} == {0o600}


def test_rows_that_are_put_aside_have_no_name(folder, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    batches = pa.table({"a": list(range(100))}).to_batches()
    spill = ExternalSort(iter(batches), np.arange(100)[::-1].copy(), stretch=10)
    assert not list(folder.iterdir())
    assert [row for batch in spill.batches(["a"]) for row in batch["a"].to_pylist()] == list(range(100))[::-1]


def test_nobody_can_read_a_private_file_while_it_is_written(folder, monkeypatch):
    """Modes are looked at when content is flushed, and when the file gets its name."""
    seen: list[tuple[str, int]] = []
    sync = os.fsync

    def look(descriptor: int) -> None:
        seen.extend((each.name, mode(each)) for each in folder.rglob("*"))
        sync(descriptor)

    monkeypatch.setattr(writing.os, "fsync", look)
    replace_private(folder / "secret", b"x" * 100)
    partial = [each for each in seen if each[0] != "secret"]
    assert partial
    assert all(held == 0o700 for _, held in partial), "only a folder that nobody else can enter"
    assert {held for name, held in seen if name == "secret"} == {0o600}


def test_many_writers_of_one_file_leave_one_whole_file(folder):
    def write(number: int) -> None:
        for _ in range(20):
            replace_private(folder / "kept.json", bytes([number]) * 1000)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(write, range(6)))
    assert len(set((folder / "kept.json").read_bytes())) == 1
    assert [each.name for each in folder.iterdir()] == ["kept.json"]
