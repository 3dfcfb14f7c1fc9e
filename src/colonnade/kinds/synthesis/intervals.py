"""Several tables that carry the uncertainty of the noise, and the rules that combine what is computed from each.

One synthetic table tells nothing about how far noise moved it. So noise of the same law is drawn again, on the
marginals of the fitted model, and the model is fitted again: these fits differ from the first about as the first
differs from the truth (docs/theory/fitting-marginals.md, section 7).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri, stdtrit

from colonnade.errors import StudyError
from colonnade.kinds.synthesis.product_mixture import ProductMixture
from colonnade.kinds.synthesis.release_fit import fit_products
from colonnade.kinds.tables.release import Floats, Residual, centre
from colonnade.protocols.roles import Progress, silent
from colonnade.randomness import Stream
from colonnade.tables.coding import ForbiddenCodes

MIN_REFITS = 3
"""Tables: of fewer, the variance between them says too little."""
REFIT_STEPS = 250
"""Steps of a fit that starts from the first one."""


def redraw_noise(model: ProductMixture, count: float, residuals: Sequence[Residual], stream: Stream) -> list[Residual]:
    """The residuals of the model with new noise of the same deviations."""
    return [
        Residual(
            each.columns,
            count * centre(model.marginal(each.columns))
            + centre(each.deviation * _normal_draws(each.values.shape, stream)),
            each.deviation,
        )
        for each in residuals
        if each.columns
    ]


def refit_redrawn(
    model: ProductMixture,
    count: float,
    residuals: Sequence[Residual],
    times: int,
    stream: Stream,
    *,
    count_deviation: float = 0.0,
    impossible: Sequence[ForbiddenCodes] = (),
    steps: int = REFIT_STEPS,
    progress: Progress = silent,
) -> list[ProductMixture]:
    """The model fitted to as many redrawn releases; ``count_deviation`` is that of the count's noise."""
    if times < MIN_REFITS:
        raise StudyError(f"intervals need at least {MIN_REFITS} tables [ST357]")
    found = []
    for done in range(times):
        counted = max(1.0, count + count_deviation * float(_normal_draws((1,), stream)[0]))
        redrawn = redraw_noise(model, count, residuals, stream)
        found.append(fit_products(model.sizes, counted, redrawn, start=model, steps=steps, impossible=impossible))
        progress("fits with redrawn noise", done + 1, times)
    return found


@dataclass(frozen=True)
class CombinedInterval:
    """An estimate with an interval for what it would be for the population of the real people.

    ``within`` is the mean variance of the estimate as the tables' own rows give it. ``between`` is the mean square of
    how far the estimates of tables with redrawn noise are from the first: what noise and fit cause, bias included.
    """

    estimate: float
    low: float
    high: float
    within: float
    between: float
    freedom: float

    @property
    def deviation(self) -> float:
        """The root of the mean squared error that the interval rests on."""
        return math.sqrt(self.within + self.between)


def combine_estimates(estimates: Sequence[float], variances: Sequence[float], level: float = 0.95) -> CombinedInterval:
    """One interval from an estimate and its usual variance in each of several tables.

    The first table comes from the model, the others from :func:`refit_redrawn`, and each is as long as the number of
    real people. The interval is around the first estimate, by Student's law.
    """
    values, usual = np.asarray(estimates, dtype=np.float64), np.asarray(variances, dtype=np.float64)
    if values.ndim != 1 or values.shape != usual.shape or len(values) <= MIN_REFITS:
        raise StudyError(
            f"combining needs an estimate and a variance from a table and from {MIN_REFITS} refits or more [ST358]"
        )
    if not (np.isfinite(values).all() and np.isfinite(usual).all() and (usual >= 0).all()):
        raise StudyError("an estimate or its variance is not a finite number, or a variance is negative [ST359]")
    if not 0 < level < 1:
        raise StudyError("the level of an interval lies between 0 and 1 [ST360]")
    estimate, within = float(values[0]), float(usual.mean())
    between = float(np.mean((values[1:] - estimate) ** 2))
    if between == 0:
        freedom, quantile = math.inf, float(ndtri((1 + level) / 2))
    else:
        # Satterthwaite: the variance between rests on as many squares as there are refits, that within on many people.
        freedom = (len(values) - 1) * (1 + within / between) ** 2
        quantile = float(stdtrit(freedom, (1 + level) / 2))
    reach = quantile * math.sqrt(within + between)
    return CombinedInterval(estimate, estimate - reach, estimate + reach, within, between, freedom)


def _normal_draws(shape: tuple[int, ...], stream: Stream) -> Floats:
    uniform = ((stream.uint64(shape) >> np.uint64(12)) + 0.5) * 2.0**-52
    return np.asarray(ndtri(uniform))
