"""Which device computes products of shares: a GPU with fast float64 if one is found, else the CPU.

The search takes seconds (torch, the driver, a kernel to build). So it starts when enough work is expected, in a thread
of its own, and nobody waits for it. Until a device is found the CPU does the work; both give the same bits.

torch is imported only here, and only if there is a driver. ``COLONNADE_ACCELERATOR`` is ``auto``, ``off`` (never search
for a device) or ``cpu`` (run the torch code on the CPU, to test it without a GPU).
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from threading import Lock, Thread

from colonnade.errors import ColonnadeError
from colonnade.mpc.accelerator.device import Accelerator, Residues

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
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return False
    return True
