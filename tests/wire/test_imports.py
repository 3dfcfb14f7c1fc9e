"""What it costs to import the pillars: nothing heavy is loaded before it is needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import colonnade
from colonnade import wire

HEAVY = ("grpc", "cryptography.x509", "flint", "nacl", "torch", "scipy", "pyarrow", "pandas", "pydantic")
ALONE = """
import sys, types
sys.modules["colonnade"] = types.ModuleType("colonnade")
sys.modules["colonnade"].__path__ = [{folder!r}]
{statement}
print(*sorted(set({names!r}) & set(sys.modules)))
"""
"""A program that imports without what the package as a whole imports."""


def loaded(statement: str, names: tuple[str, ...]) -> str:
    """Which of these modules a fresh process has loaded after this statement."""
    folder = str(Path(colonnade.__file__).parent)
    program = ALONE.format(folder=folder, statement=statement, names=names)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    return ended.stdout.strip()


@pytest.mark.parametrize(
    "statement",
    [
        "from colonnade.wire import check_name, Network, Room, Counters",
        "from colonnade.wire import Certificate, Endpoint, Hub, Identity, dial, probe",
    ],
)
def test_names_of_the_wire_load_no_other_library_than_numpy(statement: str) -> None:
    assert loaded(statement, (*HEAVY, "cryptography")) == ""


def test_a_name_loads_only_its_own_module() -> None:
    modules = tuple(f"colonnade.wire.{name}" for name in ("hub", "hub_carrier", "channel", "room", "tls"))
    assert loaded("from colonnade.wire import check_name", (*modules, "asyncio", "ssl")) == ""


@pytest.mark.parametrize("module", ["committee", "hand", "blinding", "keyvalue", "accelerator", "fixed.functions"])
def test_modules_of_mpc_load_no_heavy_library(module: str) -> None:
    assert loaded(f"import colonnade.mpc.{module}", HEAVY) == ""


def test_a_certificate_is_what_loads_the_library_for_certificates() -> None:
    statement = "from colonnade.wire import Identity; Identity.create('bank')"
    assert loaded(statement, HEAVY) == "cryptography.x509"


def test_every_exported_name_is_found_and_no_other() -> None:
    for name in wire.__all__:
        assert getattr(wire, name).__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        wire.nothing  # noqa: B018
