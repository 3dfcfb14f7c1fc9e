# mypy: ignore-errors
"""One Triton kernel that reduces many products modulo a prime and adds them, and reads each number once.

Only :mod:`colonnade.mpc.accelerator` imports this, if Triton is installed. The kernel is in Triton's language,
not Python, so the type checker ignores this file.
"""

from __future__ import annotations

from functools import cache

import triton
import triton.language as tl
from triton.language.extra import libdevice

_WIDTH = 128


def build_fold(torch, device):
    """A function like ``accelerator.Fold`` that runs one kernel on this device."""

    @cache
    def constants(prime):
        # A tensor, because Triton would pass a number as a float32.
        return torch.tensor([1.0 / prime, float(prime)], dtype=torch.float64, device=device)

    def run(products, prime, total, first):
        size = total.numel()
        if not size:
            return
        grid = (triton.cdiv(size, _WIDTH),)
        _reduce_and_add[grid](products, constants(prime), total, len(products), size, FIRST=first, WIDTH=_WIDTH)

    return run


@triton.jit
def _reduce_and_add(products, constants, total, count, size, FIRST: tl.constexpr, WIDTH: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * WIDTH + tl.arange(0, WIDTH)
    inside = at < size
    inverse = tl.load(constants)
    prime = tl.load(constants + 1)
    added = tl.zeros((WIDTH,), tl.float64)
    if not FIRST:
        added = tl.load(total + at, inside, other=0.0)
    for _ in range(count):
        value = tl.load(products + at, inside, other=0.0)
        added += value - libdevice.rint(value * inverse) * prime
        products += size
    tl.store(total + at, added - libdevice.rint(added * inverse) * prime, inside)
