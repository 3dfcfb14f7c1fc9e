"""Finding a GPU with fast float64 for products of shares, while nobody waits for it.

Looking takes seconds (torch, the driver, a kernel to build), so it begins when there is work enough to be expected, in
a thread of its own. Until then, and where there is no such device, the CPU does the work; both give the same bits, so
nobody can tell from the results.

torch is imported only here, and only where there is a driver. ``COLONNADE_ACCELERATOR`` is ``auto``, ``off`` (never
look for one) or ``cpu`` (the same torch code on the CPU, to test it without a GPU).
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
WORTH = 1 << 27
"""Fewer multiplications (20 ms of one core) stay on the CPU, as do those with fewer than REUSE to each number moved."""
REUSE = 16
LOOK = 1 << 37
"""So many multiplications (20 s of one core) are worth looking for a device: it slows everything else down by 5 s."""


@dataclass
class _Search:
    """How much work there was, whether somebody has begun to look, and what was found: all of one process."""

    process: int = field(default_factory=os.getpid)
    multiplications: int = 0
    begun: bool = False
    device: Accelerator | None = None
    counting: Lock = field(default_factory=Lock)
    looking: Lock = field(default_factory=Lock)


_search = _Search()


def expect(multiplications: int) -> None:
    """So much work lies ahead, or was done in vain: begin to look for a device, if all of it is worth that."""
    search = _of_this_process()
    with search.counting:
        search.multiplications += multiplications
        begin = search.multiplications >= LOOK and not search.begun
        search.begun |= begin
    if begin and chosen() == "auto" and _has_driver():
        # Not a daemon: at the end of the process one that is loading torch would crash it.
        Thread(target=find, name="accelerator").start()


def found() -> Accelerator | None:
    """The device, once it is found; nobody waits for that."""
    setting = chosen()
    if setting == "cpu":
        return find()
    return _of_this_process().device if setting == "auto" else None


def find() -> Accelerator | None:
    """Look for a device, and wait until that is done."""
    setting = chosen()
    if setting == "off":
        return None
    search = _of_this_process()
    with search.looking:
        device = _find(setting, search.process)
        search.begun = True
        search.device = device
        if device is not None and device.device.type != "cpu" and not device.fused:
            device.use_kernel()
    return device


def offload(left: Residues, right: Residues, primes: Sequence[int]) -> Residues | None:
    """Left' right from an accelerator, where there is one and it pays for the way; None if the CPU had better do it."""
    if not pays(left.shape, right.shape):
        return None
    device = found()
    if device is None:
        expect(left.size * right.shape[2])
        return None
    try:
        product: Residues = device.inner(left, right, primes)
    except RuntimeError as error:
        give_up(device, error)
        return None
    return product


def give_up(device: Accelerator, error: RuntimeError) -> None:
    """A device that failed is not asked again, unless it was only full of somebody else's work."""
    if not isinstance(error, device.torch.OutOfMemoryError):
        _of_this_process().device = None


def pays(left: tuple[int, ...], right: tuple[int, ...]) -> bool:
    """Whether a product of arrays of these shapes takes longer here than the way to a device and back."""
    primes, rows, a = left
    b = right[2]
    return primes * rows * a * b >= max(WORTH, REUSE * primes * (rows * (a + b) + a * b))


def _of_this_process() -> _Search:
    """A process that was forked has no use for the device of another."""
    global _search
    if _search.process != os.getpid():
        _search = _Search()
    return _search


def chosen() -> str:
    """What the environment asks for; a study looks before it begins, so that a misspelling does not end it midway."""
    setting = os.environ.get(SETTING, "auto")
    if setting not in ("auto", "cpu", "off"):
        raise ColonnadeError(f"{SETTING} is none of auto, cpu and off: set it to one of them, or unset it")
    return setting


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
        usable = found.is_fast() and found.is_exact()
    except RuntimeError:  # a device that is there and cannot be used: busy, full, or of the process that forked this
        return None
    return found if usable else None


@cache
def _has_driver() -> bool:
    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return False
    return True
