"""Damaged files of every kind are refused with their name and a documented error, or they load and can be used."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import random
import shutil
import sqlite3
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest

from colonnade.errors import BudgetError, ColonnadeError, PolicyError, StudyError
from colonnade.kinds.split.encoders import encoder_from, load_encoder, save_encoder
from colonnade.models import Estimator
from colonnade.models.registry import section_of
from colonnade.privacy import Ledger, Observer, parse_budgets
from colonnade.privacy.ledger.storage import GENESIS, hash_line, read_changes
from colonnade.report import render
from colonnade.study import PartyConfig, Study, ledger_view, preflight
from colonnade.study.record import read_facts
from colonnade.tables import Schema, draft_schema, read_table
from colonnade.wire import Certificate, Identity
from tests.support.errors import raises
from tests.support.reports import make_run

FIXTURES = Path(__file__).parents[1] / "fixtures"
MODELS = FIXTURES / "models"
PEOPLE = {name: FIXTURES / "people" / f"{name}.csv" for name in ("bank", "shop", "clinic")}
# --- ways to damage a file: in its bytes, in the values of its JSON or TOML, in arrays, and in the cells of a ledger

DEEP = 20_000
ODD = (
    "true", "false", "null", "0", "-1", "2", "3", "0.5", "1e308", "1e-320", "1e999", "NaN", "Infinity", "inf", "-inf",
    "1" + "0" * 400, "1" + "0" * 5000, "-1" + "0" * 400, "9" * 25, "1_000", "0x10", "0x" + "f" * 300, "0x" + "f" * 5000,
    "[0o" + "7" * 5000 + "]", "0b" + "1" * 20_000, '""', '"x"', '"1/0"', '"1e999"', '"1e99999999"', f'"{"9" * 9000}"',
    f'"{"x" * 50_000}"', '"\\u0000"', '"a\\u001b[2Jb"', '"\\ud800"', '"/dev/zero"', '"."', '"../.."', "[]", "{}",
    "[[[]]]", "[null]", '["a", "a"]', '["analyst"]', '[1, "a"]', '{"a": 1}', "{a = 1, b = {c = 2}}", "1979-05-27",
    "07:32:00", "[" * 50 + "]" * 50, "[" * 200 + "]" * 200, "[" * DEEP + "]" * DEEP, "{x = " * 300 + "1" + "}" * 300,
)  # fmt: skip
"""Values as JSON or TOML writes them; what one of them does not know is damage there too."""
INTRUDERS = (b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"\x00", b"\xef\xbb\xbf", b"\x1b[2J", b"\r", b"\xf4\x90\x80\x80",
             b"A" * 1000, b"[" * 1000, b'{"a":' * 200, b"1e999", b"NaN", b"-1", b"1" + b"0" * 1000)  # fmt: skip
TABLES = {"entry": "changes", "state": "changes", "at": "changes", "known": "people", "content": "sums"}
CELLS = (("study", b"\xff\xfe{"), ("entry", "x"), ("state", b"sent"), ("state", "gone"), ("at", b"\xff"), ("at", 5),
         ("created", "9999-12-31T23:59:59-23:59"), ("created", "0001-01-01"), ("digest", "\x1b[2J"), ("events", 7),
         ("events", "[" * DEEP), ("trust", 2.5), ("trust", "1" * 6000), ("known", ""), ("known", "null"),
         *(("events", None), ("trust", None), ("known", None), ("content", None)) * 6)  # fmt: skip
"""Columns of a ledger (of entries, unless said otherwise) and what is put there; nothing: their JSON, damaged."""


def in_bytes(chance: random.Random, content: bytes) -> bytes:
    start = chance.randrange(len(content))
    end = min(len(content), start + chance.choice((0, 1, 2, 7, 40, 300, len(content))))
    piece = content[start:end]
    flipped = bytes(byte ^ 1 << chance.randrange(8) for byte in piece[:2]) + piece[2:]
    new = chance.choice((b"", piece * 2, flipped, chance.randbytes(len(piece)), chance.choice(INTRUDERS)))
    return content[:start] + new + content[end:]


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value[:50]) if isinstance(value, list) else ()
    for key, each in inside:
        yield value, key
        yield from places(each)


def in_json(chance: random.Random, content: bytes | str) -> bytes:
    """A value is gone, is another one, or stands under another name too."""
    value = json.loads(content)
    (holder, key), (other, there) = chance.choices(list(places(value)), k=2)
    old, way = holder[key], chance.randrange(8)
    if way == 0:
        del holder[key]
    elif way == 1:
        holder[key] = copy.deepcopy(other[there])
    elif way == 2 and isinstance(holder, dict):
        holder[chance.choice(("strange", "", "kind", "\u0000"))] = copy.deepcopy(old)
    elif way == 3 and isinstance(old, int | float):
        holder[key] = chance.choice((-old, old * 10**9, old + 1, str(old), [old]))
    else:
        holder[key] = "ODD"
    return json.dumps(value).replace('"ODD"', chance.choice(ODD)).encode()


def in_toml(chance: random.Random, content: bytes) -> bytes:
    lines = content.decode().splitlines()
    named = [place for place, line in enumerate(lines) if "=" in line and not line.startswith("#")]
    place, other = chance.choice(named), chance.choice(named)
    name, _, value = lines[place].partition("=")
    strange = chance.choice(("strange", "_", '""', "x" * 30_000, ".".join("a" * chance.choice((3, 40, 30_000)))))
    new = {0: "", 1: f"{name}={lines[other].partition('=')[2]}", 2: f"{strange} ={value}\n{lines[place]}"}
    lines[place] = new.get(chance.randrange(8), f"{name}= {chance.choice(ODD)}")
    return ("\n".join(lines) + "\n").encode()


def in_pem(chance: random.Random, content: bytes) -> bytes:
    """Damage what PEM text stands for, not the text: the structure within is then read."""
    first, *inside, last = content.decode().splitlines()
    damaged = in_bytes(chance, base64.b64decode("".join(inside)))
    return "\n".join([first, base64.b64encode(damaged).decode(), last, ""]).encode()


def content(*ways: Callable[[random.Random, bytes], bytes]) -> Callable[[random.Random, Path], None]:
    def damage(chance: random.Random, path: Path) -> None:
        path.write_bytes(chance.choice(ways)(chance, path.read_bytes()))

    return damage


ANY, JSON = content(in_bytes), content(in_bytes, in_json, in_json)
TOML, PEM = content(in_bytes, in_toml, in_toml), content(in_bytes, in_pem, in_pem)


def arrays(chance: random.Random, path: Path) -> None:
    """Damage arrays, or what they say of themselves; mostly the digest in the model's JSON is made to fit."""
    model, path = path.with_suffix(".json"), path.with_suffix(".npz")
    if chance.random() < 0.4:
        ANY(chance, path)
    else:
        with np.load(path, allow_pickle=False) as held:
            found = {name: held[name] for name in held.files}
        name = chance.choice(sorted(found))
        if found[name].dtype.kind == "U" and found[name].ndim == 0:
            found[name] = np.array(in_json(chance, str(found[name])).decode())
        else:
            found[name] = found[name].ravel()[: chance.randrange(1 + found[name].size)]
        np.savez(path, **found)
    if model.exists() and chance.random() < 0.9:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        model.write_text(json.dumps(json.loads(model.read_bytes()) | {"arrays": digest}))


def cells(chance: random.Random, path: Path) -> None:
    """Change a cell of a ledger; mostly chain and seals are then made to fit, as somebody who knows how could do."""
    with closing(sqlite3.connect(path, isolation_level=None)) as base:
        base.execute("PRAGMA ignore_check_constraints = ON")
        guards = base.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
        for name, _ in guards:
            base.execute(f"DROP TRIGGER {name}")
        there = {name for (name,) in base.execute("SELECT name FROM sqlite_schema")}
        column, new = chance.choice([cell for cell in CELLS if TABLES.get(cell[0], "entries") in there])
        table = TABLES.get(column, "entries")
        row, held = chance.choice(base.execute(f"SELECT rowid, {column} FROM {table}").fetchall())  # noqa: S608
        value = in_json(chance, held).decode() if new is None else new
        base.execute(f"UPDATE OR REPLACE {table} SET {column} = ? WHERE rowid = ?", (value, row))  # noqa: S608
        if chance.random() < 0.7:
            chain_anew(base)
        for _, text in guards:
            base.execute(text)


def chain_anew(base: sqlite3.Connection) -> None:
    previous, links = GENESIS, []
    try:
        for change in read_changes(base):
            previous = hash_line(change.line(previous))
            links.append((previous, change.number))
    except Exception:
        return  # what cannot be hashed stays as it is
    base.executemany("UPDATE chain SET hash = ? WHERE change = ?", links)


# --- every kind of file that Colonnade reads: a whole one, and what a user does with it


def copied(place: str, folder: Path) -> Path:
    found = FIXTURES / place
    if (held := found.with_suffix(".npz")).exists():
        shutil.copy(held, folder)
    return Path(shutil.copy(found, folder))


def study(place: str, folder: Path) -> Path:
    for name in ("models", "studies"):
        shutil.copytree(FIXTURES / name, folder / name)
    return folder / place


@cache
def whole_study(name: str) -> Study:
    return Study.load(FIXTURES / "studies" / f"{name}.toml")


def use_study(path: Path) -> None:
    found = Study.load(path)
    json.dumps(preflight(found).to_dict())
    assert len(found.digest) == 64


def use_party(path: Path) -> None:
    config = PartyConfig.load(path)
    assert all(np.isfinite(cap.epsilon) for cap in config.caps)
    assert all(period.days > 0 for period in config.periods)
    config.check(whole_study("align-composite"))
    config.check_budget(whole_study("pca-moments"))


def use_schema(path: Path) -> None:
    schema = Schema.load(path)
    assert Schema.from_toml(schema.to_toml()) == schema
    assert np.isfinite(schema.clip)


def use_model(path: Path) -> None:
    model: Any = Estimator.load(path.with_suffix(".json"))
    assert model.summary()
    assert str(model.privacy_)
    assert repr(model)
    json.dumps(model.learned_values(), allow_nan=False)
    render(make_run({name: ["a"] for name in model.schemas_}), model.privacy_, model, section_of(model.kind))
    people = {name: PEOPLE[name] for name in model.schemas_}
    if hasattr(model, "transform"):
        assert np.isfinite(model.transform(people, id="person_id")).all()
    if hasattr(model, "predict") and model.has_public_weights:
        assert np.isfinite(model.scores(people, id="person_id")).all()
        json.dumps(model.to_json(), allow_nan=False)
    if hasattr(model, "sample"):
        assert model.sample(20).num_rows <= 20
        assert model.published_files()
    if getattr(model, "ids_", None) is not None:
        assert len(model.joint.ids) == len(model.joint.scores) == len(model.joint.predictions)


def use_kept(path: Path) -> None:
    name = path.name.partition(".")[0]
    model: Any = Estimator.load(MODELS / f"{name}.json")
    for other in MODELS.glob(f"{name}.kept.*"):
        model.load_kept(path if other.name == path.name else other)
    with np.errstate(over="ignore", invalid="ignore"):
        scores = model.scores(PEOPLE, id="person_id")
    assert scores.size
    assert name != "glm" or np.isfinite(scores).all()


def encoder(spec: dict[str, Any], folder: Path) -> Path:
    if spec["kind"] == "mlp":
        pytest.importorskip("torch")
    save_encoder(encoder_from(spec, 24, seed=1), folder / "encoder.npz")
    return folder / "encoder.npz"


def use_encoder(path: Path) -> None:
    found = load_encoder(path)
    with np.errstate(over="ignore", invalid="ignore"):
        embedded = found.embed(np.random.default_rng(0).uniform(-1, 1, (3, found.columns)))
    assert embedded.shape == (3, found.width)


def record(folder: Path) -> Path:
    facts = {"status": "finished", "lost": [], "traffic": {"bank": {"sent": 3}}}
    (folder / "run.json").write_text(json.dumps(facts), encoding="utf-8")
    return folder / "run.json"


def ledger_with_keys(folder: Path) -> Path:
    asked, ledger = whole_study("pca-moments"), Ledger(folder / "ledger.sqlite", owner="bank")
    keys = {name: f"sha256:{name}" for name in (*PEOPLE, "coordinator")}
    ledger.reserve("s", "", asked.events, asked.trust, (), (), keys)
    return ledger.path


def use_ledger(path: Path) -> None:
    ledger, caps, asked = Ledger(path), parse_budgets({"analyst": 50.0}, 1e-5), whole_study("pca-moments")
    json.dumps(ledger_view.ledger_facts(ledger, 1e-5, None, None), allow_nan=False)
    ledger_view.ledger_text(ledger, 1e-5, 30.0, None)
    for form in ("jsonl", "csv"):
        ledger_view.export_chain(ledger, form)
    ledger.remaining(caps)
    assert ledger.epsilon_spent(Observer.analyst(), 1e-5) >= 0
    ledger.check("s", asked.events, asked.trust, caps)
    ledger.note_time()
    ledger.verify()


def use_identity(path: Path) -> None:
    path.with_suffix(".key").chmod(0o600)
    Certificate.load(path.with_suffix(".crt")).check_dates()
    assert Identity.load(path.with_suffix(".key"), path.with_suffix(".crt")).name == "bank"


def parquet(folder: Path) -> Path:
    pyarrow.parquet.write_table(pyarrow.csv.read_csv(PEOPLE["shop"]), folder / "shop.parquet")
    return folder / "shop.parquet"


def use_table(path: Path) -> None:
    schema = Schema.load(FIXTURES / "studies" / "schemas" / "shop.toml")
    for on_disk in (False, True):
        assert np.isfinite(read_table(path, schema, on_disk=on_disk).matrix()).all()
    draft_schema(path)


SHAPED = {"shape": [6, 4], "width": 5}
ENCODERS = (
    {"kind": "cosine", "width": 6},
    {"kind": "edges", "every": 2, **SHAPED},
    {"kind": "linear", "width": 4, "over": {"kind": "cosine", "width": 6}},
    {"kind": "mlp", "width": 4, "hidden": [3]},
)
SUBJECTS = {
    **{
        f"study {name}": (partial(study, f"studies/{name}.toml"), use_study, TOML)
        for name in ("pca-moments", "glm-gradient", "align-composite", "polynomial", "sketch", "prediction-noisy")
    },
    "party": (partial(copied, "party/party.toml"), use_party, TOML),
    "schema": (partial(copied, "studies/schemas/shop.toml"), use_schema, TOML),
    **{
        f"model {name}": (partial(copied, f"models/{name}.json"), use_model, JSON)
        for name in ("pca", "pca-power", "linear", "logistic-classes", "logistic-sqm", "glm", "glm-gradient",
                     "polynomial", "synthetic", "synthetic-mixture", "prediction", "prediction-untold", "glm-scores")
    },
    **{
        f"arrays of {name}": (partial(copied, f"models/{name}.json"), use_model, arrays)
        for name in ("synthetic", "synthetic-mixture")
    },
    **{
        f"kept {name}": (partial(copied, f"models/{name}.json"), use_kept, JSON)
        for name in ("glm.kept.bank", "glm.kept.shop")
    },
    "kept encoder": (partial(copied, "models/split-embeddings.kept.bank.npz"), use_kept, arrays),
    **{f"encoder {spec['kind']}": (partial(encoder, spec), use_encoder, arrays) for spec in ENCODERS},
    "run record": (record, lambda path: read_facts(path.parent), JSON),
    "ledger bytes": (partial(copied, "ledger/earlier-ledger.db"), use_ledger, ANY),
    "ledger cells": (partial(copied, "ledger/earlier-ledger.db"), use_ledger, cells),
    "ledger cells with keys": (ledger_with_keys, use_ledger, cells),
    "certificate": (lambda folder: Identity.create("bank").save(folder)[1], use_identity, PEM),
    "key": (lambda folder: Identity.create("bank").save(folder)[0], use_identity, PEM),
    "csv": (partial(copied, "people/shop.csv"), use_table, ANY),
    "parquet": (parquet, use_table, ANY),
}  # fmt: skip


@pytest.mark.parametrize(
    "numbers",
    [range(4), pytest.param(range(4, 2000), marks=[pytest.mark.slow, pytest.mark.timeout(3600)])],
    ids=["a few", "many"],
)
@pytest.mark.parametrize("name", SUBJECTS)
def test_damaged_files_are_refused_by_name_or_can_be_used(name, numbers, tmp_path):
    """The first one holds nothing that was in it; who can tell it refuses that one at least."""
    make, use, damage = SUBJECTS[name]
    (tmp_path / "whole").mkdir()
    whole = make(tmp_path / "whole")
    use(whole)
    refused = 0
    for number in numbers:
        place = tmp_path / str(number)
        shutil.copytree(tmp_path / "whole", place)
        damaged = place / whole.relative_to(tmp_path / "whole")
        damage(random.Random(f"{name} {number}"), damaged)  # noqa: S311 - repeatable, nothing secret
        if number == numbers[0]:
            damaged.write_bytes(bytes(range(256)))
        said = None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of numbers that are absurd
                use(damaged)
        except (PolicyError, BudgetError):  # by what it says, which is not damaged
            refused += 1
        except ColonnadeError as error:
            refused, said = refused + 1, str(error).rstrip()
        except Exception as error:
            raise AssertionError(f"{name} {number}: {type(error).__name__} instead of a refusal") from error
        shutil.rmtree(place)
        if said is not None:
            assert "\n" not in said
            assert len(said) < 2500 + len(str(place))
            assert damaged.name in said or str(damaged.parent) in said or "/dev/zero" in said, said
    assert refused > (len(numbers) > 4) * len(numbers) / 4


def asked_about(model: str, folder: Path, change: Callable[[dict[str, Any]], object]) -> Study:
    """A question about a model whose JSON was changed."""
    for name in ("models", "studies"):
        shutil.copytree(FIXTURES / name, folder / name)
    held = folder / "models" / f"{model}.json"
    content = json.loads(held.read_bytes())
    change(content)
    held.write_text(json.dumps(content))
    kind, to = {
        "glm": ("glm-scores", "bank"),
        "split": ("split-scores", "bank"),
        "split-regressor": ("split-scores", "shop"),
    }.get(model, ("prediction", "bank"))
    lines = [
        'name = "x"',
        *(['security = "semi-honest"'] if kind != "glm-scores" else []),
        f'[task]\nkind = "{kind}"\nmodel = "../models/{model}.json"',
        *([f'to = "{to}"'] if kind != "glm-scores" else []),
        'answers = "levels"' if kind == "prediction" else "rows_at_most = 100",
        f'[budget]\nepsilon = {{ {to} = 4.0 }}\n[coordinator]\naddress = "h.example.org:7443"',
        *(f'[parties.{name}]\nschema = "schemas/{name}.toml"' for name in PEOPLE),
    ]
    (folder / "studies" / "x.toml").write_text("\n".join(lines))
    return Study.load(folder / "studies" / "x.toml")


@pytest.mark.parametrize(
    ("model", "where", "value"),
    [
        ("glm", "learned plan senders shop row_norm", 0.0),
        ("glm", "learned plan senders shop drift", 1e300),
        ("split", "learned plan clips shop", "1/0"),
        ("split", "learned plan clips shop", 1e-9),
        ("split", "learned plan clips", None),
        ("split", "learned plan widths shop", "6"),
        ("split-regressor", "parameters encoders", "x"),
        ("linear", "learned coef", 1e308),
    ],
)
def test_a_question_refuses_a_model_whose_values_no_fit_leaves(model, where, value, tmp_path):
    def change(content: dict[str, Any]) -> None:
        *path, last = where.split()
        for name in path:
            content = content[name]
        content[last] = np.full_like(content[last], value).tolist() if last == "coef" else value

    with raises(StudyError, "ST091", f"{model}.json"):
        _ = asked_about(model, tmp_path, change).task.agreement


def test_bounds_that_are_whole_numbers_are_bounds(tmp_path):
    """JSON writes 1.0 and 1; the agreement writes both alike."""
    bounds = {"row_norm": 1, "score_clip": 2, "drift": 0}
    found = asked_about("glm", tmp_path, lambda content: content["learned"]["plan"]["senders"].update(shop=bounds))
    assert "0x1.0000000000000p+0" in str(found.task.agreement)
