"""Tables and privacy are imported without the large libraries, which come with the first use that needs them."""

from __future__ import annotations

import importlib
import subprocess
import sys
from types import ModuleType

import pytest

from tools.pages import ROOT

HEAVY = {"pyarrow", "scipy", "flint", "grpc", "sklearn", "pydantic", "pandas", "matplotlib"}
TABLES = ("columns", "schema", "toml", "draft", "encode", "decode", "centred", "keys", "normal", "places", "table")
TABLES += ("cells", "files", "ids", "parse", "reading", "spill", "sources.opening", "sources.query")
PRIVACY = ("observers", "releases", "events", "sensitivity", "accountant", "calibrate", "statement", "ledger", "noise")
PRIVACY += ("noise.grid", "noise.response", "noise.rounding", "pictures")
# The package itself is a bare one here: what it imports is its own matter.
PROGRAM = """
import importlib, sys, types
package = types.ModuleType("colonnade")
package.__path__ = [{source!r}]
sys.modules["colonnade"] = package
for name in {names!r}:
    importlib.import_module(name)
    found = {heavy!r} & set(sys.modules)
    assert not found, f"{{name}} imports {{sorted(found)}}"
"""


@pytest.mark.parametrize(("pillar", "modules"), [("tables", TABLES), ("privacy", PRIVACY)])
def test_large_libraries_are_left_until_they_are_needed(pillar: str, modules: tuple[str, ...]) -> None:
    names = [f"colonnade.{pillar}", *(f"colonnade.{pillar}.{module}" for module in modules)]
    program = PROGRAM.format(source=str(ROOT / "src" / "colonnade"), names=names, heavy=HEAVY)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("pillar", ["colonnade.tables", "colonnade.privacy"])
def test_every_exported_name_is_listed_and_found(pillar: str) -> None:
    package = importlib.import_module(pillar)
    assert set(package.__all__) <= set(dir(package))
    for name in package.__all__:
        assert not isinstance(getattr(package, name), ModuleType), name
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = package.nonsense
