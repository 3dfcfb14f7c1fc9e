"""Every kind of file that Colonnade reads: a whole one, ways to damage it, and what a user does with it."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from colonnade.disk import reading
from colonnade.kinds import SplitClassifier
from colonnade.kinds.split.encoders import encoder_from, load_encoder, save_encoder
from colonnade.models import Estimator, Roster
from colonnade.models.registry import section_of
from colonnade.privacy import Ledger, Observer, Statement, parse_budgets
from colonnade.privacy.events import from_json
from colonnade.privacy.ledger.sums import NEWEST
from colonnade.report import render
from colonnade.study import PartyConfig, Study, book, preflight
from colonnade.study.alignment.store import Store
from colonnade.study.record import read_facts
from colonnade.study.scale import BUILT_IN, Fleet, Measured, estimate
from colonnade.study.scale.constants import in_words
from colonnade.study.scale.model import Part, Work
from colonnade.tables import Schema, draft_schema, flag, number, read_table
from colonnade.wire import Certificate, Identity

from . import mutations

FIXTURES = Path(__file__).parents[1] / "fixtures"
PARTIES = ("bank", "shop", "clinic")
MODELS = ("pca", "pca-power", "linear", "logistic-classes", "logistic-sqm", "glm", "glm-gradient", "polynomial",
    "synthetic", "synthetic-mixture")  # fmt: skip
SCORES = ("prediction", "prediction-untold", "glm-scores")
STUDIES = (
    "pca-moments",
    "linear-by-party",
    "glm-gradient",
    "align-composite",
    "polynomial",
    "sketch",
    "prediction-noisy",
)

Damage = Callable[[random.Random, Path], None]


@dataclass(frozen=True)
class Subject:
    """One kind of file: ``make`` writes a whole one into a folder, ``use`` does what a user would."""

    name: str
    make: Callable[[Path], Path]
    use: Callable[[Path], Any]
    damage: Damage
    quiet: bool = False
    """Whether a damaged file is passed over with a note instead of an error."""


def in_bytes(*ways: mutations.Damage) -> Damage:
    """Damage the content of the file."""

    def damage(chance: random.Random, path: Path) -> None:
        path.write_bytes(chance.choice(ways)(chance, path.read_bytes()))

    return damage


def copied(*parts: str) -> Callable[[Path], Path]:
    """A copy of a file, with the arrays that belong to it."""

    def copy(folder: Path) -> Path:
        found = FIXTURES.joinpath(*parts)
        if (arrays := found.with_suffix(".npz")).exists():
            shutil.copy(arrays, folder)
        return Path(shutil.copy(found, folder))

    return copy


# --- studies, parties, schemas


def _study(name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        shutil.copytree(FIXTURES / "models", folder / "models")
        shutil.copytree(FIXTURES / "studies", folder / "studies")
        return folder / "studies" / f"{name}.toml"

    return make


def _use_study(path: Path) -> None:
    study = Study.load(path)
    json.dumps(preflight(study).to_dict())
    assert len(study.digest) == 64


def _use_party(path: Path) -> None:
    config = PartyConfig.load(path)
    assert all(np.isfinite(cap.epsilon) for cap in config.caps)
    assert all(period.days > 0 for period in config.periods)
    config.check(_whole_study("align-composite"))
    config.check_budget(_whole_study("pca-moments"))


@cache
def _whole_study(name: str) -> Study:
    return Study.load(FIXTURES / "studies" / f"{name}.toml")


def _use_schema(path: Path) -> None:
    schema = Schema.load(path)
    assert Schema.from_toml(schema.to_toml()) == schema
    assert np.isfinite(schema.clip)


# --- models


def _use_model(path: Path) -> None:
    model: Any = Estimator.load(path)
    assert model.summary()
    assert str(model.privacy_)
    assert repr(model)
    json.dumps(model.learned(), allow_nan=False)
    section = section_of(model.kind)
    render(_run_of(model), model.privacy_, model, section)
    people = {name: FIXTURES / "people" / f"{name}.csv" for name in model.schemas_}
    if hasattr(model, "transform"):
        assert np.isfinite(model.transform(people, id="person_id")).all()
    if hasattr(model, "predict") and model.has_public_weights:
        assert np.isfinite(model.scores(people, id="person_id")).all()
        json.dumps(model.to_json(), allow_nan=False)
    if hasattr(model, "sample"):
        assert model.sample(20).num_rows <= 20
        assert model.published()
    if getattr(model, "ids_", None) is not None:
        joint = model.joint
        assert len(joint.ids) == len(joint.scores) == len(joint.predictions)


def _run_of(model: Any) -> dict[str, Any]:
    owners = list(model.schemas_)
    facts = {"columns": ["a"], "seat": True, "phases": {}, "traffic": {}, "seconds": 1.5}
    task = {"kind": model.kind, "law": "skellam", "noise_std": 6.5, "gamma": 4096, "rows_at_most": 1000, "columns": 6}
    task |= {"primes": 3, "value_bits": 55, "system_bits": 65, "noise": "30"}
    return {
        "study": "s", "digest": "7f" * 32, "started": "2025-05-01T09:00:00.000+00:00", "seconds": 2.0,
        "ended": "2025-05-01T09:00:02.000+00:00", "status": "finished", "platform": "here", "processors": 2,
        "participants": [*owners, "coordinator"], "task": task, "parties": dict.fromkeys(owners, facts),
        "coordinator": facts,
    }  # fmt: skip


def _with_arrays(folder: Path) -> Path:
    """A PCA with arrays beside it, which no kind of ours writes for so few columns: read as any reader would."""
    content = json.loads((FIXTURES / "models" / "pca.json").read_text(encoding="utf-8"))
    np.savez(folder / "model.npz", components=np.eye(3), names=np.array(["a", "b"]))
    content["arrays"] = hashlib.sha256((folder / "model.npz").read_bytes()).hexdigest()
    (folder / "model.json").write_text(json.dumps(content), encoding="utf-8")
    return folder / "model.npz"


def _damage_arrays(chance: random.Random, path: Path) -> None:
    """Damage the arrays, and mostly make the digest in the JSON fit."""
    in_bytes(*mutations.ANY)(chance, path)
    if chance.random() < 0.9:
        model = path.with_suffix(".json")
        content = json.loads(model.read_text(encoding="utf-8"))
        model.write_text(json.dumps(content | {"arrays": hashlib.sha256(path.read_bytes()).hexdigest()}))


def _encoder(spec: dict[str, Any], columns: int) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        if spec["kind"] == "mlp":
            pytest.importorskip("torch", reason="networks need torch")
        path = folder / "encoder.npz"
        save_encoder(encoder_from(spec, columns, seed=1), path)
        return path

    return make


def _use_encoder(path: Path) -> None:
    encoder = load_encoder(path)
    with np.errstate(over="ignore", invalid="ignore"):
        found = encoder.embed(np.random.default_rng(0).uniform(-1, 1, (3, encoder.columns)))
    assert found.shape == (3, encoder.width)


def _damage_named(name: str, whole: float = 0.4, about: float = 1.0) -> Damage:
    """Damage the bytes of a file of arrays, or what it says of itself under this name, or one of its arrays."""

    def damage(chance: random.Random, path: Path) -> None:
        if chance.random() < whole:
            in_bytes(*mutations.ANY)(chance, path)
            return
        with np.load(path, allow_pickle=False) as held:
            arrays = {each: held[each] for each in held.files}
        if chance.random() < about:
            said = chance.choice(mutations.JSON)(chance, str(arrays[name]).encode())
            arrays[name] = np.array(said.decode("utf-8", errors="replace"))
        else:
            other = chance.choice(sorted(set(arrays) - {name}))
            arrays[other] = arrays[other].ravel()[: chance.randrange(1 + arrays[other].size)]
        np.savez(path, **arrays)

    return damage


@cache
def _whole_split() -> Any:
    """A split model over told embeddings, whose active party keeps a head besides its encoder."""
    schemas = {"bank": Schema({"a": number(-1, 1), "y": flag()}), "shop": Schema({"b": number(-1, 1)})}
    held, chance = {"id": [f"p{k}" for k in range(40)]}, np.random.default_rng(2)
    a, b = chance.uniform(-1, 1, (2, 40))
    frames = {"bank": pa.table({**held, "a": a, "y": a + b > 0}), "shop": pa.table({**held, "b": b})}
    people = {name: read_table(frame, schemas[name], id="id") for name, frame in frames.items()}
    model = SplitClassifier(label="bank.y", head="embeddings", epsilon=9.0, width=4, rows=40)
    return model.simulate(people, Roster.of(schemas)), people


def _kept_of_split(folder: Path) -> Path:
    return Path(_whole_split()[0].save_kept(folder / "kept.npz", "bank"))


def _use_kept_of_split(path: Path) -> None:
    model, people = _whole_split()
    again = copy(model)
    again.encoders_, again.own_ = {"shop": model.encoders_["shop"]}, {"shop": model.own_["shop"]}
    assert again.load_kept(path) == "bank"
    with np.errstate(over="ignore", invalid="ignore"):
        assert again.scores(people).shape == (40, 2)


def _use_kept(path: Path) -> None:
    model = _whole_glm()
    party = model.load_kept(path)
    rows, weights = model.kept_rows(party, _people(party))
    assert np.isfinite(rows @ weights).all()


@cache
def _whole_glm() -> Any:
    return Estimator.load(FIXTURES / "models" / "glm.json")


def _people(party: str) -> Any:
    schema = Schema.load(FIXTURES / "studies" / "schemas" / f"{party}.toml")
    return read_table(FIXTURES / "people" / f"{party}.csv", schema)


# --- statements, records


def _made(name: str, content: Callable[[], Any]) -> Callable[[Path], Path]:
    """A file with this content as JSON."""

    def make(folder: Path) -> Path:
        (folder / name).write_text(json.dumps(content()), encoding="utf-8")
        return folder / name

    return make


def _privacy() -> Any:
    return json.loads((FIXTURES / "models" / "logistic-sqm.json").read_text(encoding="utf-8"))["privacy"]


def _use_statement(path: Path) -> None:
    try:
        content = reading.read_json(path)
    except reading.Malformed:
        return  # whoever reads a statement parses its JSON first
    statement = Statement.from_dict(content)
    assert str(statement)
    assert statement.epsilon("analyst") >= 0


def _use_event(path: Path) -> None:
    from_json(path.read_bytes().decode("utf-8", errors="replace")).to_json()


RUN = {"status": "finished", "lost": [], "traffic": {"bank": {"sent": 3}}}


def _use_run(path: Path) -> None:
    read_facts(path.parent)


# --- ledgers


def _ledger_with_sums(folder: Path) -> Path:
    """A ledger of the present version with so many entries that some are summed as a block."""
    path = folder / "ledger.sqlite"
    path.write_bytes(_content_with_sums())
    return path


@cache
def _content_with_sums() -> bytes:
    study, keys = _whole_study("pca-moments"), {name: f"sha256:{name}" for name in (*PARTIES, "coordinator")}
    with TemporaryDirectory() as folder:
        ledger = Ledger(Path(folder) / "ledger.sqlite", owner="bank")
        for number in range(NEWEST + 2):
            ledger.reserve(f"s{number}", "", study.events, study.trust, (), (), keys)
        return ledger.path.read_bytes()


def _use_ledger(path: Path) -> None:
    ledger = Ledger(path)
    caps = parse_budgets({"analyst": 50.0}, 1e-5)
    json.dumps(book.facts(ledger, 1e-5, None, None), allow_nan=False)
    book.text(ledger, 1e-5, 30.0, None)
    book.export(ledger, "jsonl")
    book.export(ledger, "csv")
    ledger.left(caps)
    assert ledger.spent(Observer.analyst(), 1e-5) >= 0
    study = _whole_study("pca-moments")
    ledger.check("s", study.events, study.trust, caps)
    ledger.note_time()
    ledger.verify()


# --- keys and certificates


def _identity(suffix: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        key, certificate = Identity.create("bank").save(folder)
        return key if suffix == ".key" else certificate

    return make


def _use_certificate(path: Path) -> None:
    certificate = Certificate.load(path)
    certificate.check_dates()
    assert certificate.fingerprint.startswith("sha256:")


def _use_identity(path: Path) -> None:
    path.chmod(0o600)
    assert Identity.load(path.with_suffix(".key"), path.with_suffix(".crt")).name == "bank"


# --- alignments and tables


def _alignment(folder: Path) -> Path:
    shutil.copytree(FIXTURES / "party", folder / "party")
    study, config = _whole_study("align-hidden"), PartyConfig.load(folder / "party" / "party.toml")
    return Store(config.alignments, study, config.name).path


def _use_alignment(path: Path) -> None:
    study, config = _whole_study("align-hidden"), PartyConfig.load(path.parents[1] / "party.toml")
    table = config.table(study.roster.schemas[config.name], study.aligning.plan)
    Store(config.alignments, study, config.name).find(table.keys, lambda _: None)


def _parquet(folder: Path) -> Path:
    path = folder / "shop.parquet"
    pa.parquet.write_table(pa.csv.read_csv(FIXTURES / "people" / "shop.csv"), path)
    return path


def _use_table(path: Path) -> None:
    schema = Schema.load(FIXTURES / "studies" / "schemas" / "shop.toml")
    for on_disk in (False, True):
        assert np.isfinite(read_table(path, schema, on_disk=on_disk).matrix()).all()
    draft_schema(path)


def _bench(folder: Path) -> Path:
    """Constants as `colonnade bench` writes them."""
    path = folder / "bench.json"
    Measured(BUILT_IN.constants, "2026-11-01T10:00:00+00:00", 8, "x86_64, 8 processors", "0.1.0").save(path)
    return path


def _use_bench(path: Path) -> None:
    found = Measured.load(path)
    part = Part("a", rows=10**9, columns=200, align_ids=10**6, dealt=10**12, products=10**14, sent=10**12)
    assert estimate(Work((part,), 1024, 10**6, 20), Fleet(64, cores=found.processors), found.constants).seconds > 0
    assert all(in_words(name, value) for name, value in vars(found.constants).items())
    assert found.source


SUBJECTS = (
    *(Subject(f"study {name}", _study(name), _use_study, in_bytes(*mutations.TOML)) for name in STUDIES),
    Subject("party", copied("party", "party.toml"), _use_party, in_bytes(*mutations.TOML)),
    Subject("schema", copied("studies", "schemas", "shop.toml"), _use_schema, in_bytes(*mutations.TOML)),
    *(
        Subject(f"model {name}", copied("models", f"{name}.json"), _use_model, in_bytes(*mutations.JSON))
        for name in (*MODELS, *SCORES)
    ),
    *(
        Subject(
            f"arrays of {name}",
            lambda folder, name=name: copied("models", f"{name}.json")(folder).with_suffix(".npz"),
            lambda path: _use_model(path.with_suffix(".json")),
            _damage_arrays,
        )
        for name in ("synthetic", "synthetic-mixture")
    ),
    Subject("arrays", _with_arrays, lambda path: _use_model(path.with_suffix(".json")), _damage_arrays),
    *(
        Subject(f"kept {name}", copied("models", f"glm.kept.{name}.json"), _use_kept, in_bytes(*mutations.JSON))
        for name in ("bank", "shop")
    ),
    *(
        Subject(f"encoder {spec['kind']}", _encoder(spec, 24), _use_encoder, _damage_named("encoder"))
        for spec in (
            {"kind": "cosine", "width": 6},
            {"kind": "edges", "shape": [6, 4], "width": 5, "every": 2},
            {"kind": "convolution", "shape": [6, 4], "filters": 4, "size": 3, "width": 5},
            {"kind": "linear", "width": 4, "over": {"kind": "cosine", "width": 6}},
            {"kind": "mlp", "width": 4, "hidden": [3]},
        )
    ),
    Subject("kept encoder", _kept_of_split, _use_kept_of_split, _damage_named("about", 0.3, 0.5)),
    Subject("statement", _made("privacy.json", _privacy), _use_statement, in_bytes(mutations.json_values)),
    Subject("event", _made("event.json", lambda: _privacy()["events"][0]), _use_event, in_bytes(*mutations.JSON)),
    Subject(
        "run record", _made("run.json", lambda: RUN), lambda path: read_facts(path.parent), in_bytes(*mutations.JSON)
    ),
    Subject("ledger bytes", copied("ledger", "earlier-ledger.db"), _use_ledger, in_bytes(*mutations.ANY)),
    Subject("ledger cells", copied("ledger", "earlier-ledger.db"), _use_ledger, mutations.ledger_cells),
    Subject("ledger with sums", _ledger_with_sums, _use_ledger, mutations.people_and_sums),
    Subject("certificate", _identity(".crt"), _use_certificate, in_bytes(*mutations.PEM)),
    Subject("key", _identity(".key"), _use_identity, in_bytes(*mutations.PEM)),
    Subject("alignment", _alignment, _use_alignment, in_bytes(*mutations.ANY), quiet=True),
    Subject("csv", copied("people", "shop.csv"), _use_table, in_bytes(*mutations.ANY)),
    Subject("parquet", _parquet, _use_table, in_bytes(*mutations.ANY)),
    Subject("bench", _bench, _use_bench, in_bytes(*mutations.JSON)),
)
