"""The residue kernels on a GPU with fast float64, bit for bit what the CPU computes.

A product modulo one prime is one batched ``dgemm`` over blocks of at most 2048 rows, each exact for the reason it is
on the CPU, and one kernel that reduces the blocks and adds them up. Both paths end in canonical residues, so they
cannot differ. Randomness is never made here: it stays with the stream cipher on the CPU.

torch is imported only by :func:`find`, and only where there is a driver. ``COLONNADE_ACCELERATOR`` is ``auto``, ``off``
(never look for one) or ``cpu`` (the same torch code on the CPU, to test it without a GPU).
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import ColonnadeError
from colonnade.mpc.accelerator_memory import Memory

Residues = NDArray[np.float64]
Tensor = Any
"""A tensor on the device; torch is optional, so its types cannot be named."""
Fold = Callable[[Tensor, int, Tensor, bool], None]
"""Reduces products modulo a prime and adds them to a total, or begins it; the products may be spoiled."""

SETTING = "COLONNADE_ACCELERATOR"
WORTH = 1 << 27
"""Fewer multiplications (20 ms of one core) stay on the CPU, as do those with fewer than REUSE to each number moved."""
REUSE = 16
LOOK = 1 << 35
"""Looking takes seconds (torch, the driver, a kernel to build), so so many multiplications (5 s) come first."""
_MOST_ROWS = 2048
_SLAB_ROWS = _MOST_ROWS**2
_SLAB = 1 << 26
"""Numbers of one operand that come from the host at a time: 512 MB."""
_BATCH = 1 << 25
"""Numbers in one batch of block products: 256 MB, or one block where that is larger."""
_FAST = 2e12
"""Operations a second below which a CPU does as well: most cards have little float64."""


@dataclass
class _Past:
    """What offload() did without, so far."""

    multiplications: int = 0
    lock: Lock = field(default_factory=Lock)


_past = _Past()


def find() -> Accelerator | None:
    """The accelerator of this process, or None. Looked for once; a process that was forked looks for its own."""
    setting = _setting()
    if setting == "off":
        return None
    with _past.lock:
        _past.multiplications = LOOK
        return _find(setting, os.getpid())


def offload(left: Residues, right: Residues, primes: Sequence[int]) -> Residues | None:
    """Left' right from an accelerator, where there is one and it pays for the way; None if the CPU had better do it.

    The first products stay on the CPU until they have taken about as long as looking for an accelerator does. As both
    give the same bits, nobody can tell from the results.
    """
    device = worth(left.size * right.shape[2]) if pays(left.shape, right.shape) else None
    if device is None:
        return None
    try:
        product: Residues = device.inner(left, right, primes)
    except device.torch.OutOfMemoryError:  # the work of somebody else fills the device
        return None
    return product


def worth(multiplications: int) -> Accelerator | None:
    """The accelerator, if so many multiplications, with all before them, are worth looking for one."""
    return find() if _worth_looking(multiplications) else None


def pays(left: tuple[int, ...], right: tuple[int, ...]) -> bool:
    """Whether a product of arrays of these shapes takes longer here than the way to a device and back."""
    primes, rows, a = left
    b = right[2]
    return primes * rows * a * b >= max(WORTH, REUSE * primes * (rows * (a + b) + a * b))


def _worth_looking(multiplications: int) -> bool:
    with _past.lock:
        _past.multiplications += multiplications
        return _past.multiplications >= LOOK or _setting() == "cpu"


def _setting() -> str:
    setting = os.environ.get(SETTING, "auto")
    if setting not in ("auto", "cpu", "off"):
        raise ColonnadeError(f"{SETTING} is none of auto, cpu and off: set it to one of them, or unset it")
    return setting


class Accelerator:
    """A device for residues. Arrays have the primes as their first axis, as everywhere.

    Operands are numpy arrays, or tensors that :meth:`place` put on the device, where later calls find them. A product
    is a numpy array if both operands are. Numpy operands of any length are taken in slabs: beside two products modulo
    one prime they need at most 2.5 GB on the device.
    """

    def __init__(self, torch: Any, device: str) -> None:
        self.torch = torch
        self.device = torch.device(device)
        self._memory = Memory(torch, self.device)
        self._fold: Fold = _fold

    @property
    def fused(self) -> bool:
        """Whether reductions are one kernel (Triton) rather than several (torch)."""
        return self._fold is not _fold

    def place(self, array: NDArray[Any]) -> Tensor:
        """A copy of an array on the device."""
        if array.ndim and len(array) > 1 and array.strides[0] == 0:
            return self.place(array[:1]).expand(array.shape)
        if array.ndim == 2 and array.strides[0] < array.strides[1]:
            return self.place(array.T).T
        return self._memory.place(array)

    def fetch(self, tensor: Tensor) -> NDArray[Any]:
        """A copy of a tensor in the host's memory."""
        return self._memory.fetch(tensor)

    def inner(self, left: Any, right: Any, primes: Sequence[int]) -> Any:
        """Left' right for each prime: (k, rows, a) and (k, rows, b) to (k, a, b), exactly."""
        shape = (len(primes), left.shape[2], right.shape[2])
        local = isinstance(left, np.ndarray) and isinstance(right, np.ndarray)
        result: Any = np.empty(shape) if local else self._empty(shape)
        scratch = self._empty(shape[1:]) if local else None
        for index, prime in enumerate(primes):
            total = scratch if local else result[index]
            for first, a, b in self._slabs(left[index], right[index]):
                self._multiply(a, b, prime, total, first)
            if local:
                self._memory.fetch(total, result[index])
        return result

    def matmul(self, left: Any, right: Any, primes: Sequence[int]) -> Any:
        """Left right for each prime: (k, rows, a) and (k, a, b) to (k, rows, b), exactly."""
        return self.inner(left.swapaxes(1, 2), right, primes)

    def reduce(self, values: Tensor, primes: Sequence[int]) -> Tensor:
        """Reduce a tensor in place, canonically; entries up to 2^53 - p in magnitude."""
        for prime, row in zip(primes, values, strict=True):
            self._centre(row, prime)
        return values

    def split(self, values: Any, primes: Sequence[int]) -> Tensor:
        """Signed int64 or integer-valued float64 numbers to residues on the device."""
        placed = self._placed(values)
        shape = (len(primes), *placed.shape)
        if placed.is_floating_point():
            if not placed.numel() or placed.abs().max().item() < min(primes) // 2:
                return placed.expand(shape)
            placed = placed.long()
        out = self._empty(shape)
        for prime, row in zip(primes, out, strict=True):
            row.copy_(placed.remainder(prime))
            self._centre(row, prime)
        return out

    def combine(self, values: Sequence[Any], factors: Sequence[Sequence[int]], primes: Sequence[int]) -> Tensor:
        """Arrays, each times its factor for each prime, added up: with ``shamir.weights``, ``shamir.combine``."""
        placed = [self._placed(value) for value in values]
        out = self._empty(placed[0].shape)
        for index, (prime, row) in enumerate(zip(primes, factors, strict=True)):
            self.torch.mul(placed[0][index], row[0], out=out[index])
            for factor, value in zip(row[1:], placed[1:], strict=True):
                out[index].add_(value[index], alpha=factor)
            self._centre(out[index], prime)
        return out

    def _placed(self, values: Any) -> Tensor:
        return self.place(values) if isinstance(values, np.ndarray) else values

    def _empty(self, shape: Sequence[int]) -> Tensor:
        return self.torch.empty(tuple(shape), dtype=self.torch.float64, device=self.device)

    def _slabs(self, left: Any, right: Any) -> Iterator[tuple[bool, Tensor, Tensor]]:
        """Rows that are on the device at the same time, and whether they are the first."""
        rows, width = left.shape[0], max(1, left.shape[1], right.shape[1])
        resident = not isinstance(left, np.ndarray) and not isinstance(right, np.ndarray)
        step = _SLAB_ROWS if resident else min(_SLAB_ROWS, max(1, _SLAB // width))
        for start in range(0, max(rows, 1), step):
            here = slice(start, start + step)
            yield start == 0, self._placed(left[here]), self._placed(right[here])

    def _multiply(self, left: Tensor, right: Tensor, prime: int, total: Tensor, first: bool) -> None:
        """Add left' right to a total, or begin it. Blocks are equally long; the rows left over are one more."""
        rows, (a, b) = left.shape[0], total.shape
        # As on the CPU: a sum of so many products, and a multiple of the prime beside it, are exact as floats.
        most = min(_MOST_ROWS, (2**53 - prime) // (prime // 2) ** 2)
        count = max(1, -(-rows // most))
        size, rest = divmod(rows, count)  # in a slab there are at most 2048 blocks, so rest is below 2048
        batch = max(1, min(count, _BATCH // max(1, a * b)))
        for start in range(0, count, batch):
            many = min(batch, count - start)
            tail = rest if start + many == count else 0
            products = self._empty((many + (tail > 0), a, b))
            here = slice(start * size, (start + many) * size)
            blocks = [matrix[here].unflatten(0, (many, size)) for matrix in (left, right)]
            self.torch.bmm(blocks[0].mT, blocks[1], out=products[:many])
            if tail:
                self.torch.mm(left[-tail:].mT, right[-tail:], out=products[many])
            self._fold(products, prime, total, first and start == 0)

    def _centre(self, values: Tensor, prime: int) -> None:
        fold = self._fold if values.is_contiguous() else _fold
        fold(values.unsqueeze(0), prime, values, True)

    def use_kernel(self) -> None:
        """Do the reductions in one fused kernel, if Triton can build it here and it proves itself."""
        try:
            self._fold = import_module("colonnade.mpc.accelerator_kernel").fold(self.torch, self.device)
            proven = self.is_exact()
        except Exception:  # no Triton, no compiler, no place for its cache: whatever it was, torch does the same
            proven = False
        if not proven:
            self._fold = _fold

    def is_exact(self) -> bool:
        """Whether a product near the worst magnitudes is right: a library may emulate float64 with fewer bits."""
        prime, width = 2**22 - 3, 256
        noise = (np.arange(2 * _MOST_ROWS * width, dtype=np.int64) * 40_503 % 8191).reshape(2, _MOST_ROWS, width)
        left, right = prime // 2 - noise, np.where(noise % 7 == 0, -1, 1) * (prime // 2 - noise[::-1])
        exact = sum(
            (a.astype(float).T @ b.astype(float)).astype(np.int64) % prime for a, b in zip(left, right, strict=True)
        )
        want = (exact + prime // 2) % prime - prime // 2
        placed = [self.place(matrix.reshape(1, -1, width).astype(float)) for matrix in (left, right)]
        return bool(np.array_equal(self.fetch(self.inner(placed[0], placed[1], (prime,)))[0], want))

    def is_fast(self) -> bool:
        """Whether float64 products run at a rate that is worth the way to the device."""
        side, many = 2048, 4
        square = self.torch.ones((side, side), dtype=self.torch.float64, device=self.device)
        begun, ended = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        square @ square  # the first one loads the library
        begun.record()
        for _ in range(many):
            square @ square
        ended.record()
        ended.synchronize()
        return bool(many * 2 * side**3 >= _FAST * begun.elapsed_time(ended) / 1e3)


def _fold(products: Tensor, prime: int, total: Tensor, first: bool) -> None:
    _centre(products, prime)
    if first:
        total.copy_(products.sum(0))
    else:
        total.add_(products.sum(0))
    _centre(total, prime)


def _centre(values: Tensor, prime: int) -> None:
    """As ``residues.reduce``: multiples of the prime are exact, so a fused multiplication changes nothing."""
    quotient = values * (1.0 / prime)
    quotient.round_()
    values.sub_(quotient, alpha=prime)


@cache
def _find(setting: str, process: int) -> Accelerator | None:
    if setting == "auto" and not _has_driver():
        return None  # before torch, which takes seconds to load
    try:
        torch = import_module("torch")
    except (ImportError, OSError):
        return None
    if setting == "cpu":
        return Accelerator(torch, "cpu")
    try:
        if not torch.cuda.is_available():
            return None
        found = Accelerator(torch, "cuda")
        if not found.is_fast() or not found.is_exact():
            return None
        found.use_kernel()
    except RuntimeError:  # a device that is there and cannot be used: busy, full, or of the process that forked this
        return None
    return found


def _has_driver() -> bool:
    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return False
    return True
