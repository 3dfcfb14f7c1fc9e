"""Second moments as events for the accountant, by the law of their noise."""

from __future__ import annotations

from colonnade.privacy.additive import AdditiveNoise, AdditiveRelease
from colonnade.privacy.sensitivity import Sensitivity, moments_sensitivity
from colonnade.protocols.moments.limits import Level, Limits

NAME = "second moments"
THEOREM = "moments-sensitivity"
GROUPED_THEOREM = "functional-sensitivity"
HIDDEN_THEOREM = "hidden-members"
_MOST_REFINED = 16  # owners; beyond, what one of them holds of all columns is too little to matter


def normal_release(limits: Limits, noise: AdditiveNoise) -> AdditiveRelease:
    """All entries, each copy in the full matrix with Skellam or discrete Gaussian noise."""
    moved = moments_sensitivity(limits.norm_squared, limits.width)
    refined = ((owner, *limits.changed(_others(limits, owner))) for owner in _refined(limits))
    return noise.release(
        NAME,
        limits.width**2,
        moved,
        theorem=_theorems(limits, THEOREM),
        others=tuple(found for found in refined if found[2] < moved.replace_l2_squared),
    )


def laplace_release(limits: Limits, level: Level, noise: AdditiveNoise) -> AdditiveRelease:
    """The entries of one scale, each once with discrete Laplace noise of it."""
    added, replaced = limits.added_l1(level), limits.replaced_l1(level, limits.owners)
    refined = ((owner, limits.replaced_l1(level, _others(limits, owner)), 0) for owner in _refined(limits))
    whole = level.top and not level.lower
    return noise.release(
        NAME if whole else f"{NAME}, scale {level.scale}",
        limits.size(level),
        Sensitivity(added, added**2, replaced, replaced**2),  # no L2 norm is larger than the L1 norm
        theorem=_theorems(limits, GROUPED_THEOREM),
        about=() if level.top or limits.hidden else level.about,
        others=tuple(found for found in refined if found[1] < replaced),
    )


def _theorems(limits: Limits, theorem: str) -> str:
    return f"{theorem}, {HIDDEN_THEOREM}" if limits.hidden else theorem


def _refined(limits: Limits) -> tuple[str, ...]:
    """Whose own columns stay the same when others' change; not where a change elsewhere adds or removes its rows."""
    return limits.owners if len(limits.owners) <= _MOST_REFINED and not limits.hidden else ()


def _others(limits: Limits, owner: str) -> tuple[str, ...]:
    return tuple(other for other in limits.owners if other != owner)
