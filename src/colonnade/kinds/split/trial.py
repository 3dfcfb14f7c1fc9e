"""A supplied encoder is tried on made-up rows: a person's embedding must be a function of the person's row alone."""

from __future__ import annotations

import numpy as np

from colonnade.errors import StudyError
from colonnade.kinds.split.contract import Encoder, Matrix

APART = 1e-3
"""How far float32 may move an embedding when fewer rows are computed together."""
_CELLS, _FEWEST, _MOST = 1 << 16, 16, 1200
_ALONE = 3


def tried(encoder: Encoder) -> None:
    """Refuse an encoder that makes something else of a row when others stand beside it, or each time.

    Many rows at once, halves of them in another order, and single rows must give the same. That finds statistics of
    a batch, chance and memory; what happens only with other rows than these remains the party's word.
    """
    rows = np.random.default_rng(0).uniform(
        -1, 1, (max(_FEWEST, min(_MOST, _CELLS // encoder.columns)), encoder.columns)
    )
    together, half = _embedded(encoder, rows), len(rows) // 2
    again = np.vstack([_embedded(encoder, rows[half:]), _embedded(encoder, rows[:half][::-1])])
    alone = np.vstack([_embedded(encoder, rows[place : place + 1]) for place in range(_ALONE)])
    expected = np.vstack([together[half:], together[:half][::-1]])
    if not (same(expected, again) and same(together[:_ALONE], alone)):
        raise StudyError(
            "the encoder makes something else of a row when others stand beside it, or each time: an embedding must "
            "be a function of its own row alone, with public constants in place of means or "
            "deviations of the rows [ST337]"
        )


def same(one: Matrix, other: Matrix) -> bool:
    """Whether embeddings are the same up to rounding."""
    return bool(np.allclose(one, other, rtol=APART, atol=APART * max(1.0, float(np.abs(one).max(initial=0.0)))))


def _embedded(encoder: Encoder, rows: Matrix) -> Matrix:
    try:
        found = np.asarray(encoder.embed(rows.copy()), dtype=np.float64)
    except Exception as error:  # whatever the party's own code raises; the rows are made up
        said = (str(error).splitlines() or [""])[0][:200]
        raise StudyError(
            f"the encoder cannot be applied to {len(rows)} rows of {encoder.columns} columns: "
            f"{type(error).__name__}: {said} [ST338]"
        ) from None
    if found.shape != (len(rows), encoder.width):
        raise StudyError(f"the encoder must make one vector of {encoder.width} numbers of each row [ST339]")
    if not np.isfinite(found).all():
        raise StudyError("the encoder makes numbers that are not finite of rows between -1 and 1 [ST340]")
    return found
