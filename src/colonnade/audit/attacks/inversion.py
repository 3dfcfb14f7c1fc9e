"""Columns of a party, recovered by a decoder from what leaves it, and how like the true ones they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.ndimage import uniform_filter

from colonnade.errors import DataError, StudyError
from colonnade.models.pytorch import Adam, find_device, load_torch

Array = NDArray[np.float64]
_WINDOW = 7
_STABLE = (0.01, 0.03)
_MOST_DECIBELS = 100.0  # of equal pictures, where the ratio is infinite


def psnr(truth: ArrayLike, guess: ArrayLike, span: float = 1.0) -> Array:
    """Decibels for each picture of a stack; ``span`` is the range of pixel values, and 100 dB the most."""
    first, second = _pair(truth, guess)
    error = np.mean((first - second) ** 2, axis=tuple(range(1, first.ndim)))
    with np.errstate(divide="ignore"):
        ratio: Array = 10 * np.log10(span * span / error)
    return np.minimum(ratio, _MOST_DECIBELS)


def ssim(truth: ArrayLike, guess: ArrayLike, span: float = 1.0) -> Array:
    """Structural similarity for each picture of a stack, (n, height, width) or (n, height, width, channels).

    Means over windows of 7 by 7 pixels that lie inside, with unbiased variances; smaller pictures have smaller windows.
    """
    first, second = (_with_channels(each) for each in _pair(truth, guess))
    side = min(_WINDOW, *first.shape[1:3])
    side -= 1 - side % 2
    if side < 2:
        raise DataError("structural similarity needs pictures of at least 3 by 3 pixels [DA015]")

    def local(values: Array) -> Array:
        edge = side // 2
        means: Array = uniform_filter(values, size=(1, side, side, 1))
        return means[:, edge : values.shape[1] - edge, edge : values.shape[2] - edge]

    unbiased = side * side / (side * side - 1)
    mean_1, mean_2 = local(first), local(second)
    var_1 = unbiased * (local(first * first) - mean_1**2)
    var_2 = unbiased * (local(second * second) - mean_2**2)
    both = unbiased * (local(first * second) - mean_1 * mean_2)
    c1, c2 = ((factor * span) ** 2 for factor in _STABLE)
    found = (2 * mean_1 * mean_2 + c1) * (2 * both + c2)
    found /= (mean_1**2 + mean_2**2 + c1) * (var_1 + var_2 + c2)
    each: Array = found.mean(axis=(1, 2, 3))
    return each


def as_pictures(rows: Array, shape: tuple[int, ...]) -> Array:
    """Rows of pixels, in the order of reading, as a stack of pictures."""
    if len(shape) not in (2, 3) or int(np.prod(shape)) != rows.shape[1]:
        said = " x ".join(str(side) for side in shape)
        raise DataError(
            f"a picture of {said} does not have {rows.shape[1]} pixels, as many as the rows have columns [DA016]"
        )
    return rows.reshape(len(rows), *shape)


def _pair(truth: ArrayLike, guess: ArrayLike) -> tuple[Array, Array]:
    first, second = np.asarray(truth, dtype=np.float64), np.asarray(guess, dtype=np.float64)
    if first.shape != second.shape or first.ndim < 2:
        raise DataError("two stacks of pictures are compared only if they have the same shape [DA017]")
    return first, second


def _with_channels(pictures: Array) -> Array:
    if pictures.ndim not in (3, 4):
        raise DataError("a stack of pictures is (n, height, width) or (n, height, width, channels) [DA018]")
    return pictures if pictures.ndim == 4 else pictures[..., None]


Decoder = Callable[[Array], Array]
Kind = Literal["auto", "ridge", "mlp", "cnn"]

KINDS: tuple[Kind, ...] = get_args(Kind)
_PENALTIES = np.geomspace(1e-6, 1e4, 21)
_BATCH = 128
_PATIENCE = 8
_RATE = 1e-3


def decoder(
    seen: Array,
    rows: Array,
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
    scale = _scaling(seen)
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


def _scaling(seen: Array) -> Decoder:
    """What is seen, with mean 0 and deviation 1 over the auxiliary people."""
    middle, deviation = seen.mean(axis=0), seen.std(axis=0)
    spread = np.where(deviation > 0, deviation, 1.0)
    return lambda new: (new - middle) / spread


def _ridge(seen: Array, rows: Array, held: Array, held_rows: Array) -> Decoder:
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
    seen: Array,
    rows: Array,
    held: Array,
    held_rows: Array,
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

    def decode(asked: Array) -> Array:
        with torch.no_grad():
            out = _as_rows(module(torch.as_tensor(asked, dtype=torch.float32, device=place)))
        found: Array = out.cpu().numpy().astype(np.float64)
        return found

    return decode


def _layers(seen: Array, rows: Array, width: int) -> Any:
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


FEWEST = 20
SHOWN = 12


@dataclass(frozen=True)
class InversionData:
    """What an attacker sees of people, beside their true columns: auxiliary people to learn from, and those attacked.

    ``what`` names what is seen, such as ``"noised embeddings"``; ``needs`` says what an attacker must have to see it.
    """

    auxiliary_seen: Array
    auxiliary: Array
    seen: Array
    truth: Array
    what: str = "embeddings"
    needs: str = ""

    def __post_init__(self) -> None:
        shapes = [each.shape for each in (self.auxiliary_seen, self.auxiliary, self.seen, self.truth)]
        if any(len(shape) != 2 for shape in shapes) or shapes[0][1] != shapes[2][1] or shapes[1][1] != shapes[3][1]:
            raise DataError("auxiliary people and those attacked must be seen alike, and have the same columns [DA001]")
        if shapes[0][0] != shapes[1][0] or shapes[2][0] != shapes[3][0]:
            raise DataError("each person has one row of columns and one of what is seen [DA002]")
        if shapes[0][0] < FEWEST or shapes[2][0] < 2:
            raise DataError(
                f"an inversion needs {FEWEST} auxiliary people or more, and at least two who are attacked [DA003]"
            )
        if not all(np.isfinite(each).all() for each in (self.auxiliary_seen, self.auxiliary, self.seen, self.truth)):
            raise DataError("columns, and what is seen of them, must be finite numbers [DA004]")


@dataclass(frozen=True)
class InversionQuality:
    """How well columns were recovered, on average over people.

    ``psnr`` in decibels; ``ssim`` of pictures alone; ``explained`` is the share of the columns' variance, 0 for the
    mean of the auxiliary people; ``recognised`` the share of people of whom the guess is nearer to their own columns
    than to those of anybody else among the attacked.
    """

    psnr: float
    ssim: float | None
    explained: float
    recognised: float


@dataclass(frozen=True)
class Inversion:
    """Guesses beside the truth, and beside what an attacker could say who saw nothing: the mean of other people."""

    what: str
    needs: str
    truth: Array
    guesses: Array
    shape: tuple[int, ...]
    auxiliary: int
    found: InversionQuality
    blind: InversionQuality

    @property
    def needed(self) -> str:
        """What the attacker needed, in one sentence."""
        return (
            f"the attacker needed {self.needs}, everything that they were computed with, and {self.auxiliary:,} other "
            "people, of whom it had the columns and made the same."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; not the columns."""
        return {
            "attack": "inversion",
            "seen": self.what,
            "needed": self.needed,
            "people": len(self.truth),
            "auxiliary": self.auxiliary,
            "shape": list(self.shape),
            **{name: vars(each) for name, each in (("found", self.found), ("blind", self.blind))},
        }


def invert(
    views: InversionData,
    kind: Kind = "auto",
    *,
    shape: Sequence[int] = (),
    span: float | None = None,
    epochs: int = 60,
    width: int = 512,
    seed: int = 0,
    device: str = "cpu",
) -> Inversion:
    """Train a decoder on the auxiliary people and recover the others; ``shape`` says how columns make a picture.

    ``span`` is the range of a column's values, by default that of the auxiliary people; guesses are cut to the range
    that they have there.
    """
    if shape:
        as_pictures(views.truth[:1], tuple(shape))
    made = decoder(
        views.auxiliary_seen, views.auxiliary, kind, shape=shape, epochs=epochs, width=width, seed=seed, device=device
    )
    low, high = float(views.auxiliary.min()), float(views.auxiliary.max())
    wide = (high - low or 1.0) if span is None else span
    guesses = np.clip(made(views.seen), low, high)
    middle = np.broadcast_to(views.auxiliary.mean(axis=0), views.truth.shape)
    return Inversion(
        views.what,
        views.needs or f"the {views.what} of the person",
        views.truth,
        guesses,
        tuple(shape),
        len(views.auxiliary),
        quality(views.truth, guesses, middle, tuple(shape), wide),
        quality(views.truth, middle, middle, tuple(shape), wide),
    )


def quality(truth: Array, guesses: Array, middle: Array, shape: tuple[int, ...], span: float) -> InversionQuality:
    """How near guesses are to the truth, beside ``middle``, which stands for knowing nothing of the person."""
    left = float(np.sum((truth - guesses) ** 2))
    all_of_it = float(np.sum((truth - middle) ** 2))
    alike = None
    if shape:
        alike = float(ssim(as_pictures(truth, shape), as_pictures(guesses, shape), span).mean())
    return InversionQuality(
        float(psnr(truth, guesses, span).mean()),
        alike,
        1 - left / all_of_it if all_of_it else 0.0,
        recognised(truth, guesses),
    )


def recognised(truth: Array, guesses: Array) -> float:
    """The share of guesses that are nearest to the columns of the person they are about; ties count by their share."""
    squares: Array = (truth**2).sum(axis=1) - 2 * guesses @ truth.T
    own = np.diagonal(squares)[:, None]
    slack = 1e-9 * np.maximum(1.0, np.abs(own))
    nearer, equal = (squares < own - slack).any(axis=1), (np.abs(squares - own) <= slack).sum(axis=1)
    return float(np.mean(np.where(nearer, 0.0, 1.0 / equal)))
