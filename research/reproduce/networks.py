"""The data of SQM's Fig. 1: connections of KDD Cup 1999 and papers of CiteSeer, in the paper's sizes."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from colonnade.tables import Dataset, Schema, category, flag
from research.datasets import load_dataset, sources as files
from research.reproduce.chance import Matrix, Places
from research.reproduce.components import Case
from research.reproduce.options import Options

KDD_ROWS = 195_666
# Services that the ten-percent training file never names; without them there are the paper's 117 columns.
_UNSEEN = frozenset({"aol", "harvest", "http_2784", "http_8001", "icmp"})


def kdd(options: Options) -> Case:
    """A sample of the training rows: as many rows and columns as in the paper, though perhaps not the same ones."""
    rows = 5_000 if options.quick else KDD_ROWS
    found = load_dataset("kdd-99", folder=options.folder, split="train", rows=rows)
    columns = dict(found.schemas["connection"].columns)
    services = columns["service"].parts  # such as =http
    columns["service"] = category([part[1:] for part in services if part[1:] not in _UNSEEN])
    schemas = {**found.schemas, "connection": Schema(columns)}
    dataset = Dataset(found.name, found.description, found.arrow, schemas, found.label)
    features = dataset.feature_schemas
    parts = {party: dataset.table(party).select(schema.names).matrix() for party, schema in features.items()}
    bound = math.sqrt(sum(schema.clip**2 for schema in features.values()))
    scaled = {party: part / bound for party, part in parts.items()}
    clips = {party: Schema(schema.columns, clip=schema.clip / bound) for party, schema in features.items()}
    gammas, epsilons = ((2**12,), (1.0,)) if options.quick else ((2**8, 2**12), (0.1, 0.25, 0.5, 1.0, 2.0))
    return Case("KDD Cup 1999", scaled, clips, gammas, (1, 5, 10), epsilons)


def citeseer(options: Options) -> Case:
    """The largest connected part of the citation graph: 2,110 papers, 3,703 words, each party's part of norm 1/sqrt(3).

    The paper assumes rows of norm at most 1 without saying who sees to it; here each of three parties does.
    """
    found = load_dataset("citeseer", folder=options.folder)
    keep = _largest_part(options)
    words = {party: _words(found.arrow[party], keep) for party in found.parties}
    if options.quick:
        words = {party: part[:400, :60] for party, part in words.items()}
    clip = 1 / math.sqrt(len(words))
    parts = {party: _shortened(part, clip) for party, part in words.items()}
    schemas = {
        party: Schema({f"word{k}": flag() for k in range(part.shape[1])}, clip=clip) for party, part in parts.items()
    }
    gammas, epsilons = ((2**12,), (8.0,)) if options.quick else ((2**10, 2**14), (2.0, 8.0, 32.0))
    return Case("CiteSeer", parts, schemas, gammas, (1, 5, 10), epsilons)


def _words(table: pa.Table, keep: Places) -> Matrix:
    names = [name for name in table.column_names if name.startswith("word")]
    return np.column_stack([table[name].to_numpy() for name in names])[keep].astype(np.float64)


def _shortened(part: Matrix, clip: float) -> Matrix:
    found: Matrix = part * (clip / np.maximum(np.linalg.norm(part, axis=1), 1))[:, None]
    return found


def _largest_part(options: Options) -> Places:
    """Positions, among the papers that have a topic, of those in the largest connected part."""
    path = files.located(files.CITESEER, "citeseer", options.folder)
    with np.load(path, allow_pickle=False) as stored:
        edges, topics = stored["edges"], stored["y"]
    graph = coo_matrix((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=(len(topics), len(topics)))
    _, part = connected_components(graph, directed=False)
    largest = part == np.bincount(part).argmax()
    return np.flatnonzero(largest[topics >= 0])
