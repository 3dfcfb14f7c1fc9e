"""The proven ways from releases to epsilon and delta, one module each."""

from typing import Any

from colonnade.lazy import LazyModule

special: Any = LazyModule("scipy.special")
