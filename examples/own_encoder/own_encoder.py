"""A bank and a shop learn who will default: the shop by a torch module of its own, the bank by a built-in encoder."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from torch import nn

from colonnade import Federation, Party, SplitClassifier
from colonnade.tables.datasets import population


def shops_encoder() -> nn.Module:
    """Any module that maps a row of encoded columns to a vector; nothing of this table may have gone into it."""
    return nn.Sequential(nn.Linear(17, 32), nn.Tanh(), nn.Linear(32, 12))


def parties(rows: int, seed: int = 0) -> Federation:
    """Made-up people, of whom a bank and a shop know different columns."""
    known = population(rows, seed=seed)
    return Federation([Party(p, known.arrow[p], schema=known.schemas[p], id="person_id") for p in ("bank", "shop")])


def main(rows: int = 20_000) -> float:
    """Fit at epsilon 1 for everyone, save, and predict for other people with what was saved."""
    encoders = {"bank": {"kind": "cosine", "width": 24}, "shop": shops_encoder()}
    model = SplitClassifier(label="bank.default", epsilon=1.0, encoders=encoders).fit(parties(rows))
    print(model.privacy_)  # noqa: T201 - what each observer can learn about one person
    with TemporaryDirectory() as folder:
        public = model.save(Path(folder) / "model.json")  # the head, which everybody may have
        kept = [model.save_kept(Path(folder) / f"{party}.npz", party) for party in model.holders]  # one party's each
        again = SplitClassifier.load(public)
        for file in kept:
            again.load_kept(file, module=shops_encoder)
    score = again.score(parties(rows // 5, seed=1))
    print(f"accuracy on {rows // 5:,} other people: {score:.3f}")  # noqa: T201
    return score


if __name__ == "__main__":
    main()
