"""Copies of the example that ships with Colonnade, to run commands and programs in."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.support.ports import free_port
from tools.pages import EXAMPLE

_MADE = ("certs", "runs", "coordinator", "*.key", "*.crt", "ledger.sqlite*", "alignments")


def copy_example(folder: Path) -> tuple[Path, int]:
    """A fresh copy of the example without anything made in it, and a port that is free in place of 7443."""
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns(*_MADE))
    port = free_port()
    for study in folder.glob("*.toml"):
        text = study.read_text(encoding="utf-8").partition("\n[pins]")[0]
        study.write_text(text.replace(":7443", f":{port}"), encoding="utf-8")
    return folder, port
