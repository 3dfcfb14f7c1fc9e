"""Second moments as events for the accountant, by the law of their noise."""

from __future__ import annotations

from fractions import Fraction

from colonnade.privacy import DiscreteGaussianRelease, DiscreteLaplaceRelease, SkellamRelease
from colonnade.privacy.noise import TAIL
from colonnade.privacy.sensitivity import moments_sensitivity
from colonnade.protocols.moments.limits import Level, Limits

Normal = SkellamRelease | DiscreteGaussianRelease
Release = Normal | DiscreteLaplaceRelease

NAME = "second moments"
THEOREM = "moments-sensitivity"
GROUPED_THEOREM = "functional-sensitivity"
HIDDEN_THEOREM = "hidden-members"
_MOST_REFINED = 16  # owners; beyond, what one of them holds of all columns is too little to matter


def normal_release(limits: Limits, share: Fraction) -> Normal:
    """All entries, each copy in the full matrix with Skellam or discrete Gaussian noise."""
    kind = SkellamRelease if limits.law == "skellam" else DiscreteGaussianRelease
    moved = moments_sensitivity(limits.norm_squared, limits.width)
    refined = ((owner, *limits.changed(_others(limits, owner))) for owner in _refined(limits))
    return kind(
        name=NAME,
        shares=tuple((owner, share) for owner in limits.owners),
        dimension=limits.width**2,
        l1=moved.l1,
        l2_squared=moved.l2_squared,
        replace_l1=moved.replace_l1,
        replace_l2_squared=moved.replace_l2_squared,
        tail=float(TAIL),
        theorem=_theorems(limits, THEOREM),
        others=tuple(found for found in refined if found[2] < moved.replace_l2_squared),
    )


def laplace_release(limits: Limits, level: Level, share: Fraction) -> DiscreteLaplaceRelease:
    """The entries of one scale, each once with discrete Laplace noise."""
    replaced = limits.replaced_l1(level, limits.owners)
    refined = ((owner, limits.replaced_l1(level, _others(limits, owner)), 0) for owner in _refined(limits))
    whole = level.top and not level.lower
    return DiscreteLaplaceRelease(
        name=NAME if whole else f"{NAME}, scale {level.scale}",
        shares=tuple((owner, share) for owner in limits.owners),
        dimension=limits.size(level),
        scale=Fraction(level.scale),
        l1=limits.added_l1(level),
        replace_l1=replaced,
        tail=float(TAIL),
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
