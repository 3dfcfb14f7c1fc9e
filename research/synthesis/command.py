"""``python -m research synthesise``, ``real``, ``coded`` and ``peers``: parts of the comparison of synthetic tables."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from colonnade.cli.output import say
from colonnade.errors import StudyError
from colonnade.tables.coding import decode_codes
from research.reproduce.chance import stream
from research.synthesis import table
from research.synthesis.layouts import DATA, Bench, bench
from research.synthesis.scores import Score, ideal, scored

Data = Annotated[Path | None, typer.Option("--data", help="The folder of the data sets.  [default: COLONNADE_DATA]")]
Name = Annotated[str, typer.Argument(help=f"One of {', '.join(DATA)}.")]
Scores = Annotated[Path, typer.Argument(help="A CSV, to which lines are added.")]
Rows = Annotated[int | None, typer.Option("--rows", min=100, help="Only so many people.")]


def synthesise(
    name: Name,
    scores: Scores,
    epsilon: Annotated[list[float], typer.Option("--epsilon", help="Several are possible.")],
    way: Annotated[int, typer.Option("--way", min=0, help="Which of our methods, by number.")] = 0,
    first: Annotated[int, typer.Option("--first", min=0, help="The first seed.")] = 0,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="How many seeds.")] = 5,
    rows: Rows = None,
    data: Data = None,
) -> None:
    """Make synthetic tables of a data set, train on them, and test on real people."""
    from research.synthesis.ours import WAYS, tables

    if way >= len(WAYS):
        raise StudyError(f"--way must be 0 to {len(WAYS) - 1} [ST615]")
    of = bench(name, data, rows)
    for each in epsilon:
        for seed, made_up in tables(of, WAYS[way], each, range(first, first + seeds)):
            found = list(scored(of, made_up, WAYS[way].name, each, seed))
            table.add(scores, found)
            _tell(found)


def real(name: Name, scores: Scores, rows: Rows = None, data: Data = None) -> None:
    """Train on the real people: what no synthetic table can be expected to beat."""
    found = ideal(bench(name, data, rows))
    table.add(scores, found)
    _tell(found)


def coded(name: Name, folder: Path, data: Data = None) -> None:
    """Write the training people as codes, for programs that want a CSV of codes and a JSON of sizes."""
    of = bench(name, data)
    folder.mkdir(parents=True, exist_ok=True)
    heads = ",".join(of.names)
    np.savetxt(folder / f"{name}.csv", of.codes, fmt="%d", delimiter=",", header=heads, comments="")
    sizes = dict(zip(of.names, of.sizes, strict=True))
    (folder / f"{name}.json").write_text(json.dumps({"sizes": sizes, "label": of.label}), encoding="utf-8")
    say(f"{folder / name}.csv and .json: {len(of.codes)} rows")


def peers(scores: Scores, files: list[Path], data: Data = None) -> None:
    """Score tables of codes that peers made: npz files with ``codes`` and ``about``."""
    benches: dict[str, Bench] = {}
    for path in files:
        for found in _of_peer(path, benches, data):
            table.add(scores, [found])
            _tell([found])


def _of_peer(path: Path, benches: dict[str, Bench], data: Path | None) -> Iterator[Score]:
    try:
        with np.load(path, allow_pickle=False) as opened:
            codes, about = opened["codes"].astype(np.int64), json.loads(str(opened["about"]))
        name, method = str(about["data"]), str(about["method"])
        epsilon, seed = float(about["epsilon"]), int(about["seed"])
    except (OSError, KeyError, ValueError, TypeError):
        raise StudyError(f"{path} is no table of codes that a peer made [ST616]") from None
    if name not in benches:
        benches[name] = bench(name, data)
    of = benches[name]
    shares = [np.bincount(own, minlength=size) / len(codes) for own, size in zip(codes.T, of.sizes, strict=True)]
    made_up = decode_codes(of.codings, codes, stream(seed, name, method, epsilon), shares)
    yield from scored(of, made_up, method, epsilon, seed)


def _tell(found: list[Score]) -> None:
    for each in found:
        say(
            f"{each.data}, {each.method}, epsilon {each.epsilon:g}, seed {each.seed}: {each.model} "
            f"{each.accuracy:.4f} accuracy, {each.auc:.4f} AUC; two-way error {each.two_way:.4f}"
        )
