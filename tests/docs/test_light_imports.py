"""Names are imported without the large libraries, which come with the first use that needs them."""

from __future__ import annotations

import importlib
import subprocess
import sys
from types import ModuleType

import pytest

import colonnade
from tools.pages import ROOT

HEAVY = {"pyarrow", "scipy", "flint", "grpc", "sklearn", "pydantic", "pandas", "matplotlib", "torch", "clkhash", "nacl"}
TABLES = ("columns", "schema", "profiling", "encoding", "coding", "keys", "slots", "table", "bins")
TABLES += ("files", "cell_parsing", "dates", "sources.factory", "sources.base")
PRIVACY = ("observers", "events", "sensitivity", "accountant", "calibrate", "statement", "ledger", "noise")
PRIVACY += ("noise.local_mechanisms", "noise_laws")

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


# What a public name does not import: libraries, and the modules of Colonnade that bring much with them.
LIBRARIES = HEAVY | {"ssl", "sqlite3", "threadpoolctl", "annotated_types", "cryptography.x509", "importlib.metadata"}
LIBRARIES |= {"typer", "rich", "asyncio", "email"}
LATER = {"models.onnx_export", "models.design", "privacy.accountant", "privacy.ledger"}
LATER |= {
    "tables.sources.factory",
    "protocols.session",
    "protocols.compatibility",
    "protocols.align.programs",
    "wire.endpoint",
}
LATER |= {"study.study_file", "study.party_config"}
NAMES = {
    "PCA": LATER | {"models.federation", "study"},
    "LinearRegression": (LATER | {"models.federation", "study"})
    - {"models.design", "models.onnx_export", "privacy.accountant"},
    "Federation": (LATER | {"models.base", "models.session_budget", "study"}) - {"tables.sources.factory"},
    "Study": LATER | {"models.base", "models.federation", "protocols.committee_task"},
    "SplitClassifier": {"study"},
    "Ledger": {"models", "protocols", "mpc", "study"},
    "Schema": {"models", "protocols", "mpc", "privacy", "study", "wire"},
}


@pytest.mark.system
@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_brings_only_what_it_is_made_of(name: str) -> None:
    later = LIBRARIES - ({"sqlite3"} if name == "Ledger" else set()) | {f"colonnade.{each}" for each in NAMES[name]}
    program = f"import sys; from colonnade import {name}; sys.exit(' '.join(sorted({later} & set(sys.modules))) or 0)"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr


COMMAND = """
import sys
import typer
from colonnade.cli.app import app
found = typer.main.get_command(app).list_commands(None)
if {first!r}:
    typer.main.get_command(app).get_command(None, {first!r})
assert not {later!r} & set(sys.modules), sorted({later!r} & set(sys.modules))
print(*found)
"""


def listed(first: str) -> list[str]:
    """All commands, where this one is read; no large library is imported for that."""
    later = LIBRARIES - {"typer"} | {"numpy", "colonnade.study", "colonnade.models", "colonnade.cli.terminal"}
    program = COMMAND.format(first=first, later=later)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.split()


@pytest.mark.system
def test_commands_are_listed_and_those_of_every_day_are_read_without_large_libraries() -> None:
    assert {"run", "party", "ledger", "demo"} < set(listed(""))
    for first in ("ledger", "party", "init"):
        assert listed(first) == listed("")


# Which modules have a function that runs in the pre-flight of a study; what runs while modules are imported is not it.
TRACED = """
import sys
importing, through = 0, set()

def look(frame, event, given):
    global importing
    if event in ("call", "return") and frame.f_code.co_name == "<module>":
        importing += 1 if event == "call" else -1
    elif event == "call" and not importing and frame.f_code.co_flags & 1:
        through.add(frame.f_globals.get("__name__", ""))

from colonnade.study import Study, preflight
sys.setprofile(look)
preflight(Study.load(sys.argv[1])).to_dict()
sys.setprofile(None)
print(*sorted(name for name in through if name.startswith("colonnade.")))
"""
MOST_OF_A_PREFLIGHT = 45


@pytest.mark.system
def test_the_pre_flight_of_a_study_goes_through_few_modules() -> None:
    words = [sys.executable, "-c", TRACED, str(ROOT / "examples" / "three-organisations" / "STUDY.toml")]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    found = ended.stdout.split()
    assert {"colonnade.study.spec", "colonnade.kinds.pca.model"} < set(found)
    assert len(found) <= MOST_OF_A_PREFLIGHT, found


@pytest.mark.parametrize("pillar", ["colonnade.tables", "colonnade.privacy"])
def test_every_exported_name_is_listed_and_found(pillar: str) -> None:
    package = importlib.import_module(pillar)
    assert set(package.__all__) <= set(dir(package))
    for name in package.__all__:
        assert not isinstance(getattr(package, name), ModuleType), name
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = package.nonsense


EXPORTED = [
    "Adjacency",
    "ColonnadeError",
    "Estimate",
    "Federation",
    "GLM",
    "JointPrediction",
    "Key",
    "KeyColumn",
    "Ledger",
    "LinearRegression",
    "LogisticRegression",
    "Observer",
    "PCA",
    "Party",
    "PartyConfig",
    "PolynomialSum",
    "Query",
    "Schema",
    "SplitClassifier",
    "SplitRegressor",
    "SplitScores",
    "Statement",
    "Study",
    "Synthesizer",
    "Table",
    "__version__",
    "assess_chances",
    "category",
    "date",
    "evaluate_synthetic",
    "flag",
    "joint_scores",
    "number",
    "polynomial_sum",
    "preflight",
    "read_table",
]


def test_exactly_these_names_are_exported() -> None:
    assert sorted(colonnade.__all__) == EXPORTED
    assert all(hasattr(colonnade, name) for name in colonnade.__all__)
