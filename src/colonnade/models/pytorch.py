"""torch, which is imported when the first network is made, and where it computes."""

from __future__ import annotations

from types import ModuleType

from colonnade.errors import StudyError


def load_torch() -> ModuleType:
    """The torch library, which is needed for networks only."""
    try:
        import torch
    except ImportError:
        raise StudyError('networks need torch, which is not installed: pip install "colonnade[nn]" [ST329]') from None
    return torch


def find_device(device: str) -> str:
    """The device to compute on; ``auto`` is a GPU if torch finds one."""
    if device not in ("cpu", "cuda", "auto"):
        raise StudyError("the device of a network is cpu, cuda or auto [ST330]")
    there = load_torch().cuda.is_available()
    if device == "cuda" and not there:
        raise StudyError("torch finds no GPU here: choose the device cpu or auto [ST331]")
    return "cuda" if there and device != "cpu" else "cpu"
