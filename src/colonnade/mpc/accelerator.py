"""Products of residues on a GPU with fast float64, where there is one: the same bits as on the CPU.

A product modulo one prime is one batched ``dgemm`` over blocks of at most 2048 rows, exact for the same reason as on
the CPU, and one kernel that reduces the blocks and adds them. Both ways end in centred residues, so they cannot
differ. No randomness is made here: that is the work of the stream cipher on the CPU.

Arrays are copied through two small buffers that the device reads directly: four threads fill one while the device
reads the other. The driver itself copies ordinary memory with one thread. The last results stay in buffers of the
process and in torch's device memory until the process ends. They are shares of one seat, in its own process.

The search for a device takes seconds (torch, the driver, a kernel to build). So it starts when enough work is expected,
in a thread of its own, and nobody waits for it. Until a device is found the CPU does the work.

torch is imported only here, and only if there is a driver. ``COLONNADE_ACCELERATOR`` is ``auto``, ``off`` (never search
for a device) or ``cpu`` (run the torch code on the CPU, to test it without a GPU).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import ColonnadeError

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor


Tensor = Any
"""A tensor on the device. torch may not be installed, so its types cannot be used here."""
Bytes = NDArray[np.uint8]

_BUFFER = 1 << 24
_THREADS = 4
_FEW = 1 << 20
"""For at most this many bytes one thread is as fast as four."""


def _bytes_of(array: NDArray[Any]) -> Bytes:
    return array.reshape(-1).view(np.uint8)


def _pool() -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(_THREADS)


def _copy(pool: ThreadPoolExecutor, target: Bytes, source: Bytes) -> None:
    if len(source) <= _FEW:
        target[...] = source
        return
    step = -(-len(source) // _THREADS)
    parts = [slice(start, start + step) for start in range(0, len(source), step)]
    list(pool.map(lambda part: np.copyto(target[part], source[part]), parts))


Residues = NDArray[np.float64]
Fold = Callable[[Tensor, int, Tensor, bool], None]
"""Reduces products modulo a prime and adds them to a total, or sets it; it may overwrite the products."""

_MOST_ROWS = 2048
_SLAB_ROWS = _MOST_ROWS**2
_SLAB = 1 << 26
"""Numbers of one operand that are moved to the device at a time: 512 MB."""
_BATCH = 1 << 25
"""Numbers in one batch of block products: 256 MB, or one block if a block is larger."""
_FAST = 2e12
"""Operations per second; a slower device is no better than a CPU. Most cards are slow in float64."""


class Accelerator:
    """A device that computes with residues. All arrays have the primes as their first axis.

    Operands are numpy arrays, or tensors that :meth:`place` has put on the device. A product is a numpy array if both
    operands are numpy arrays. Long numpy arrays are moved in slabs: they need at most 2.5 GB on the device, and room
    for two products modulo one prime. Several threads may copy arrays to it and back; one at a time is served.
    """

    def __init__(self, torch: Any, device: Any) -> None:
        self.torch = torch
        self.device = torch.device(device)
        self._lock = Lock()
        self._buffers: list[tuple[Tensor, Bytes, Any]] = []
        self._fold: Fold = _fold_products

    @property
    def has_kernel(self) -> bool:
        """Whether one kernel (Triton) does the reductions, instead of several (torch)."""
        return self._fold is not _fold_products

    def place(self, array: NDArray[Any]) -> Tensor:
        """A copy of an array on the device."""
        if array.ndim and len(array) > 1 and array.strides[0] == 0:
            return self.place(array[:1]).expand(array.shape)
        if array.ndim == 2 and array.strides[0] < array.strides[1]:
            return self.place(array.T).T
        tensor = self.torch.empty(array.shape, dtype=getattr(self.torch, array.dtype.name), device=self.device)
        if self.device.type == "cpu":
            np.copyto(tensor.numpy(), array)
        elif array.size:
            with self._lock:
                self._send(_bytes_of(np.ascontiguousarray(array)), tensor.view(-1).view(self.torch.uint8))
        return tensor

    def fetch(self, tensor: Tensor, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """A copy of a tensor as a numpy array; in ``out`` if given, which must be contiguous."""
        if out is None:
            out = np.empty(tuple(tensor.shape), dtype=str(tensor.dtype).removeprefix("torch."))
        if self.device.type == "cpu":
            np.copyto(out, tensor.numpy())
        elif out.size:
            with self._lock:
                self._receive(tensor.contiguous().view(-1).view(self.torch.uint8), _bytes_of(out))
        return out

    def _send(self, source: Bytes, target: Tensor) -> None:
        with _pool() as pool:
            for index, start in enumerate(range(0, source.size, _BUFFER)):
                buffer, view, done = self._buffer(index)
                here = slice(start, min(start + _BUFFER, source.size))
                length = here.stop - start
                done.synchronize()  # wait until the device has read this buffer
                _copy(pool, view[:length], source[here])
                target[here].copy_(buffer[:length], non_blocking=True)
                done.record()

    def _receive(self, source: Tensor, target: Bytes) -> None:
        parts = [slice(start, min(start + _BUFFER, target.size)) for start in range(0, target.size, _BUFFER)]

        def ask(index: int) -> None:
            buffer, _, done = self._buffer(index)
            here = parts[index]
            buffer[: here.stop - here.start].copy_(source[here], non_blocking=True)
            done.record()

        with _pool() as pool:
            ask(0)
            for index, here in enumerate(parts):
                if index + 1 < len(parts):
                    ask(index + 1)
                _, view, done = self._buffer(index)
                done.synchronize()
                _copy(pool, target[here], view[: here.stop - here.start])

    def _buffer(self, index: int) -> tuple[Tensor, Bytes, Any]:
        """One of two buffers of pinned memory, as a tensor and as an array, and an event that tells when it is free."""
        while len(self._buffers) < 2:
            buffer = self.torch.empty(_BUFFER, dtype=self.torch.uint8, pin_memory=True)
            self._buffers.append((buffer, buffer.numpy(), self.torch.cuda.Event()))
        return self._buffers[index % 2]

    def inner(self, left: Any, right: Any, primes: Sequence[int]) -> Any:
        """Left' right modulo each prime, exactly: arrays (k, rows, a) and (k, rows, b) give (k, a, b)."""
        shape = (len(primes), left.shape[2], right.shape[2])
        local = isinstance(left, np.ndarray) and isinstance(right, np.ndarray)
        result: Any = np.empty(shape) if local else self._empty(shape)
        scratch = self._empty(shape[1:]) if local else None
        for index, prime in enumerate(primes):
            total = scratch if local else result[index]
            for first, a, b in self._slabs(left[index], right[index]):
                self._multiply(a, b, prime, total, first)
            if local:
                self.fetch(total, result[index])
        return result

    def matmul(self, left: Any, right: Any, primes: Sequence[int]) -> Any:
        """Left right modulo each prime, exactly: arrays (k, rows, a) and (k, a, b) give (k, rows, b)."""
        return self.inner(left.swapaxes(1, 2), right, primes)

    def _empty(self, shape: Sequence[int]) -> Tensor:
        return self.torch.empty(tuple(shape), dtype=self.torch.float64, device=self.device)

    def _slabs(self, left: Any, right: Any) -> Iterator[tuple[bool, Tensor, Tensor]]:
        """Slabs of rows, on the device, of both operands; the first value tells whether it is the first slab."""
        rows, width = left.shape[0], max(1, left.shape[1], right.shape[1])
        resident = not isinstance(left, np.ndarray) and not isinstance(right, np.ndarray)
        step = _SLAB_ROWS if resident else min(_SLAB_ROWS, max(1, _SLAB // width))
        for start in range(0, max(rows, 1), step):
            here = slice(start, start + step)
            a, b = (self.place(x[here]) if isinstance(x, np.ndarray) else x[here] for x in (left, right))
            yield start == 0, a, b

    def _multiply(self, left: Tensor, right: Tensor, prime: int, total: Tensor, first: bool) -> None:
        """Add left' right to the total, or set it. All blocks are equally long; the rows that remain are one more."""
        rows, (a, b) = left.shape[0], total.shape
        # As on the CPU: a sum of this many products, plus a multiple of the prime, is exact as a float.
        most = min(_MOST_ROWS, (2**53 - prime) // (prime // 2) ** 2)
        count = max(1, -(-rows // most))
        size, rest = divmod(rows, count)  # a slab has at most 2048 blocks, so rest is below 2048
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

    def use_kernel(self) -> None:
        """Do the reductions in one kernel from now on, if Triton can build it and its results are exact."""
        trial = Accelerator(self.torch, self.device)
        try:
            trial._fold = import_module("colonnade.mpc.triton_kernel").build_fold(self.torch, self.device)
            proven = trial.is_exact()
        except Exception:  # no Triton, no compiler, no place for its cache: in all cases torch does the same
            proven = False
        if proven:
            self._fold = trial._fold

    def is_exact(self) -> bool:
        """Whether a product of very large residues is right: a library may emulate float64 with fewer bits."""
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
        """Whether float64 products are so fast that moving numbers to the device is worth it."""
        side, many = 2048, 4
        square = self.torch.ones((side, side), dtype=self.torch.float64, device=self.device)
        square @ square  # the first product loads the library
        quickest = min(self._milliseconds(square) for _ in range(many))  # other threads may slow some of them down
        return bool(2 * side**3 >= _FAST * quickest / 1e3)

    def _milliseconds(self, square: Tensor) -> float:
        begun, ended = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        begun.record()
        square @ square
        ended.record()
        ended.synchronize()
        return float(begun.elapsed_time(ended))


def _fold_products(products: Tensor, prime: int, total: Tensor, first: bool) -> None:
    _centre(products, prime)
    if first:
        total.copy_(products.sum(0))
    else:
        total.add_(products.sum(0))
    _centre(total, prime)


def _centre(values: Tensor, prime: int) -> None:
    """Like ``residues.reduce``: multiples of the prime are exact, so a fused multiplication gives the same."""
    quotient = values * (1.0 / prime)
    quotient.round_()
    values.sub_(quotient, alpha=prime)


SETTING = "COLONNADE_ACCELERATOR"
MIN_MULTIPLICATIONS = 1 << 27
"""A product with fewer multiplications than this (20 ms of one core) stays on the CPU."""
MIN_REUSE = 16
"""So does a product with fewer multiplications than this for each number that is moved."""
SEARCH_THRESHOLD = 1 << 37
"""After this many multiplications (20 s of one core) the search starts: it slows down all other work by 5 s."""


@dataclass
class _DeviceSearch:
    """The search of one process: how much work there was, whether the search has begun, and what it found."""

    process: int = field(default_factory=os.getpid)
    multiplications: int = 0
    begun: bool = False
    device: Accelerator | None = None
    counting: Lock = field(default_factory=Lock)
    looking: Lock = field(default_factory=Lock)


_device_search = _DeviceSearch()


def expect_work(multiplications: int) -> None:
    """Note that this much work is coming, or was done on the CPU; start the search if there is enough of it."""
    search = _process_search()
    with search.counting:
        search.multiplications += multiplications
        begin = search.multiplications >= SEARCH_THRESHOLD and not search.begun
        search.begun |= begin
    if begin and read_setting() == "auto" and _has_driver():
        # Not a daemon: if the process ended while a daemon loads torch, it would crash.
        Thread(target=find_device, name="accelerator").start()


def current_device() -> Accelerator | None:
    """The device, or None if it has not been found yet; does not wait for the search."""
    setting = read_setting()
    if setting == "cpu":
        return find_device()
    return _process_search().device if setting == "auto" else None


def find_device() -> Accelerator | None:
    """Search for a device and wait for the result; None if there is none."""
    setting = read_setting()
    if setting == "off":
        return None
    search = _process_search()
    with search.looking:
        device = _search_device(setting, search.process)
        search.begun = True
        search.device = device
        if device is not None and device.device.type != "cpu" and not device.has_kernel:
            device.use_kernel()
    return device


def offload_product(left: Residues, right: Residues, primes: Sequence[int]) -> Residues | None:
    """Left' right, computed by an accelerator; None if the CPU must or should do it."""
    if not is_worthwhile(left.shape, right.shape):
        return None
    device = current_device()
    if device is None:
        expect_work(left.size * right.shape[2])
        return None
    try:
        product: Residues = device.inner(left, right, primes)
    except RuntimeError as error:
        abandon_device(device, error)
        return None
    return product


def abandon_device(device: Accelerator, error: RuntimeError) -> None:
    """Never use a device again after this error, unless its memory was only full."""
    if not isinstance(error, device.torch.OutOfMemoryError):
        _process_search().device = None


def is_worthwhile(left: tuple[int, ...], right: tuple[int, ...]) -> bool:
    """Whether the product of arrays of these shapes takes longer on the CPU than moving them to a device and back."""
    primes, rows, a = left
    b = right[2]
    return primes * rows * a * b >= max(MIN_MULTIPLICATIONS, MIN_REUSE * primes * (rows * (a + b) + a * b))


def _process_search() -> _DeviceSearch:
    """The search of this process; a forked process cannot use the device of its parent, so it starts a new one."""
    global _device_search
    if _device_search.process != os.getpid():
        _device_search = _DeviceSearch()
    return _device_search


def read_setting() -> str:
    """The setting in the environment; a study reads it before it begins, so that a wrong word stops it early."""
    setting = os.environ.get(SETTING, "auto")
    if setting not in ("auto", "cpu", "off"):
        raise ColonnadeError(f"{SETTING} is none of auto, cpu and off: set it to one of them, or unset it [CO024]")
    return setting


@cache
def _search_device(setting: str, process: int) -> Accelerator | None:
    if setting == "auto" and not _has_driver():
        return None  # without loading torch, which takes seconds
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
        usable = found.is_fast() and found.is_exact()
    except RuntimeError:  # the device cannot be used: it is busy, full, or in use by the parent process
        return None
    return found if usable else None


@cache
def _has_driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True
