"""Copies between numpy arrays and tensors on a device, through two small buffers that the device reads directly.

The driver itself copies ordinary memory with one thread. Here four threads fill one buffer while the device reads the
other.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

Tensor = Any
"""A tensor on the device. torch may not be installed, so its types cannot be used here."""
Bytes = NDArray[np.uint8]

_BUFFER = 1 << 24
_THREADS = 4
_FEW = 1 << 20
"""For at most this many bytes one thread is as fast as four."""


class Memory:
    """Copies arrays to a device and back. Several threads may call it; one at a time is served."""

    def __init__(self, torch: Any, device: Any) -> None:
        self._torch, self._device = torch, device
        self._lock = Lock()
        self._buffers: list[tuple[Tensor, Bytes, Any]] = []

    def place(self, array: NDArray[Any]) -> Tensor:
        """A copy of an array on the device."""
        kind = getattr(self._torch, array.dtype.name)
        tensor = self._torch.empty(array.shape, dtype=kind, device=self._device)
        if self._device.type == "cpu":
            np.copyto(tensor.numpy(), array)
        elif array.size:
            with self._lock:
                self._send(_bytes_of(np.ascontiguousarray(array)), tensor.view(-1).view(self._torch.uint8))
        return tensor

    def fetch(self, tensor: Tensor, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """A copy of a tensor as a numpy array; in ``out`` if given, which must be contiguous."""
        if out is None:
            out = np.empty(tuple(tensor.shape), dtype=str(tensor.dtype).removeprefix("torch."))
        if self._device.type == "cpu":
            np.copyto(out, tensor.numpy())
        elif out.size:
            with self._lock:
                self._receive(tensor.contiguous().view(-1).view(self._torch.uint8), _bytes_of(out))
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
            buffer = self._torch.empty(_BUFFER, dtype=self._torch.uint8, pin_memory=True)
            self._buffers.append((buffer, buffer.numpy(), self._torch.cuda.Event()))
        return self._buffers[index % 2]


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
