"""Decoders: from what an attacker sees of a person back to that person's columns.

All are trained on auxiliary people, of whom the attacker has both. A tenth of them is held out, to choose a penalty or
to know when to stop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import StudyError
from colonnade.models.pytorch import Adam, find_device, load_torch

Matrix = NDArray[np.float64]
Decoder = Callable[[Matrix], Matrix]
Kind = Literal["auto", "ridge", "mlp", "cnn"]

KINDS: tuple[Kind, ...] = ("auto", "ridge", "mlp", "cnn")
_PENALTIES = np.geomspace(1e-6, 1e4, 21)
_BATCH = 128
_PATIENCE = 8
_RATE = 1e-3


def decoder(
    seen: Matrix,
    rows: Matrix,
    kind: Kind = "auto",
    *,
    shape: Sequence[int] = (),
    epochs: int = 60,
    width: int = 512,
    seed: int = 0,
    device: str = "cpu",
) -> Decoder:
    """A decoder of one kind, trained; ``"auto"`` takes the best of those that can be had, on people held out."""
    if kind not in KINDS:
        raise StudyError(f"there is no decoder {kind!r}; choose from {', '.join(KINDS)} [ST001]")
    if kind == "cnn" and not shape:
        raise StudyError("a convolutional decoder needs the shape of the pictures [ST002]")
    scale = _Scale(seen)
    order = np.random.default_rng(seed).permutation(len(seen))
    held, used = order[: len(order) // 10], order[len(order) // 10 :]
    apart = (scale(seen[used]), rows[used], scale(seen[held]), rows[held])
    kinds: Sequence[str] = (kind,) if kind != "auto" else ("ridge", *(("cnn" if shape else "mlp",) if _torch() else ()))
    found = []
    for each in kinds:
        if each == "ridge":
            made = _ridge(*apart)
        else:
            made = _network(each, *apart, shape=shape, epochs=epochs, width=width, seed=seed, device=device)
        found.append((float(np.mean((made(apart[2]) - apart[3]) ** 2)), made))
    best = min(found, key=lambda pair: pair[0])[1]
    return lambda new: best(scale(new))


class _Scale:
    """What is seen, with mean 0 and deviation 1 over the auxiliary people."""

    def __init__(self, seen: Matrix) -> None:
        self.middle, spread = seen.mean(axis=0), seen.std(axis=0)
        self.spread = np.where(spread > 0, spread, 1.0)

    def __call__(self, seen: Matrix) -> Matrix:
        scaled: Matrix = (seen - self.middle) / self.spread
        return scaled


def _ridge(seen: Matrix, rows: Matrix, held: Matrix, held_rows: Matrix) -> Decoder:
    """Least squares with the penalty that does best on people held out."""
    middle = rows.mean(axis=0)
    values, vectors = np.linalg.eigh(seen.T @ seen / len(seen))
    products = vectors.T @ (seen.T @ (rows - middle)) / len(seen)
    turned = held @ vectors
    errors = []
    for penalty in _PENALTIES:
        guess = turned @ (products / (np.maximum(values, 0) + penalty)[:, None]) + middle
        errors.append(float(np.mean((guess - held_rows) ** 2)))
    penalty = _PENALTIES[int(np.argmin(errors))]
    weights = vectors @ (products / (np.maximum(values, 0) + penalty)[:, None])
    return lambda new: new @ weights + middle


def _network(
    kind: str,
    seen: Matrix,
    rows: Matrix,
    held: Matrix,
    held_rows: Matrix,
    *,
    shape: Sequence[int],
    epochs: int,
    width: int,
    seed: int,
    device: str,
) -> Decoder:
    """A network, trained by mean squared error until people held out are recovered no better."""
    torch: Any = load_torch()
    loss, place = torch.nn.functional.mse_loss, find_device(device)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = _convolutions(seen.shape[1], shape, width) if kind == "cnn" else _layers(seen, rows, width)
        module = made.to(place)
        given, wanted, new, new_rows = (
            torch.as_tensor(each, dtype=torch.float32, device=place) for each in (seen, rows, held, held_rows)
        )
        learned = list(module.parameters())
        steps = [Adam(_RATE) for _ in learned]
        best, kept, waited = np.inf, module.state_dict(), 0
        for _ in range(epochs):
            module.train()
            for batch in torch.randperm(len(given)).split(_BATCH):
                slopes = torch.autograd.grad(loss(_as_rows(module(given[batch])), wanted[batch]), learned)
                with torch.no_grad():
                    for each, adam, slope in zip(learned, steps, slopes, strict=True):
                        each.add_(adam.step(slope))
            module.eval()
            with torch.no_grad():
                error = float(loss(_as_rows(module(new)), new_rows))
            waited += 1
            if error < best:
                best, waited = error, 0
                kept = {name: value.detach().clone() for name, value in module.state_dict().items()}
            if waited >= _PATIENCE:
                break
    module.load_state_dict(kept)

    def decode(asked: Matrix) -> Matrix:
        with torch.no_grad():
            out = _as_rows(module(torch.as_tensor(asked, dtype=torch.float32, device=place)))
        found: Matrix = out.cpu().numpy().astype(np.float64)
        return found

    return decode


def _layers(seen: Matrix, rows: Matrix, width: int) -> Any:
    nn: Any = load_torch().nn
    return nn.Sequential(
        nn.Linear(seen.shape[1], width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, rows.shape[1])
    )


def _convolutions(inputs: int, shape: Sequence[int], width: int) -> Any:
    """From a coarse picture of many channels to the whole one, in two steps that double its sides."""
    nn: Any = load_torch().nn
    high, wide, channels = (*shape, 1)[:3]
    coarse = (-(-high // 4), -(-wide // 4))
    middle = (-(-high // 2), -(-wide // 2))
    return nn.Sequential(
        nn.Linear(inputs, width),
        nn.ReLU(),
        nn.Linear(width, 32 * coarse[0] * coarse[1]),
        nn.ReLU(),
        nn.Unflatten(1, (32, *coarse)),
        nn.Upsample(size=middle),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.ReLU(),
        nn.Upsample(size=(high, wide)),
        nn.Conv2d(32, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, channels, 3, padding=1),
    )


def _as_rows(out: Any) -> Any:
    """Pictures in the order in which a table holds pixels: by row, by column, by channel."""
    return out if out.ndim == 2 else out.permute(0, 2, 3, 1).flatten(1)


def _torch() -> bool:
    try:
        load_torch()
    except StudyError:
        return False
    return True
