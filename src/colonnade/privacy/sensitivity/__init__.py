"""How far one person can move what is released: exact bounds that are only rounded up.

Each theorem has a module, and each module a page of ``docs/theory``; the names here are those that several need.
"""

from __future__ import annotations

from colonnade.privacy.sensitivity.exact import Sensitivity, float_up, root_up
from colonnade.privacy.sensitivity.moments import moments_sensitivity, rounded_norm_squared

__all__ = [
    "Sensitivity",
    "float_up",
    "moments_sensitivity",
    "root_up",
    "rounded_norm_squared",
]
