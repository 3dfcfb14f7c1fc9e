"""How far one person can move what is released: exact bounds that are only rounded up.

Each theorem has a module, and each module a page of ``docs/theory``; ``published`` holds what the papers print instead.
"""

from __future__ import annotations

from colonnade.privacy.sensitivity.bombieri import Polynomial, bombieri_squares, polynomial_sensitivity
from colonnade.privacy.sensitivity.directions import changed_products_sensitivity, products_sensitivity
from colonnade.privacy.sensitivity.embeddings import (
    embeddings_mu_squared,
    noise_deviation,
    split_noise,
    two_stage_mu_squared,
)
from colonnade.privacy.sensitivity.exact import Sensitivity, float_up, root_up
from colonnade.privacy.sensitivity.exchange import (
    Exchange,
    active_squared,
    closed_form_squared,
    logistic_own_slope,
    passive_squared,
    weights_sensitivity,
)
from colonnade.privacy.sensitivity.functional import (
    Pairs,
    Radii,
    blocks_epsilon,
    grouped_l1,
    grouped_replace_l1,
    integer_l1,
    linear_coefficients_sensitivity,
    linear_l1,
    linear_party_l1,
    logistic_coefficients_sensitivity,
    logistic_l1,
    logistic_party_l1,
)
from colonnade.privacy.sensitivity.gradients import (
    Program,
    cubic_maximum,
    gradient_norm,
    gradient_scale,
    gradient_sensitivity,
    inner_product_bound,
    label_part,
    replaced_score_bound,
    score_bound,
    worst_weights_squared,
)
from colonnade.privacy.sensitivity.mixture import (
    mixture_sensitivity,
    noise_ratio,
    responsibilities_square,
    vector_square,
)
from colonnade.privacy.sensitivity.moments import (
    changed_columns_sensitivity,
    label_reach,
    moments_sensitivity,
    regression_moments_sensitivity,
    upper_moments_sensitivity,
)
from colonnade.privacy.sensitivity.monomials import (
    Domain,
    monomials_sensitivity,
    others_sensitivity,
    polynomial_maxima,
)
from colonnade.privacy.sensitivity.norms import (
    Rounding,
    conditional_norm,
    conditional_norm_squared,
    enforced_norm_squared,
    party_norm_squared,
    rounded_norm,
    rounded_norm_squared,
)

__all__ = [
    "Domain",
    "Exchange",
    "Pairs",
    "Polynomial",
    "Program",
    "Radii",
    "Rounding",
    "Sensitivity",
    "active_squared",
    "blocks_epsilon",
    "bombieri_squares",
    "changed_columns_sensitivity",
    "changed_products_sensitivity",
    "closed_form_squared",
    "conditional_norm",
    "conditional_norm_squared",
    "cubic_maximum",
    "embeddings_mu_squared",
    "enforced_norm_squared",
    "float_up",
    "gradient_norm",
    "gradient_scale",
    "gradient_sensitivity",
    "grouped_l1",
    "grouped_replace_l1",
    "inner_product_bound",
    "integer_l1",
    "label_part",
    "label_reach",
    "linear_coefficients_sensitivity",
    "linear_l1",
    "linear_party_l1",
    "logistic_coefficients_sensitivity",
    "logistic_l1",
    "logistic_own_slope",
    "logistic_party_l1",
    "mixture_sensitivity",
    "moments_sensitivity",
    "monomials_sensitivity",
    "noise_deviation",
    "noise_ratio",
    "others_sensitivity",
    "party_norm_squared",
    "passive_squared",
    "polynomial_maxima",
    "polynomial_sensitivity",
    "products_sensitivity",
    "regression_moments_sensitivity",
    "replaced_score_bound",
    "responsibilities_square",
    "root_up",
    "rounded_norm",
    "rounded_norm_squared",
    "score_bound",
    "split_noise",
    "two_stage_mu_squared",
    "upper_moments_sensitivity",
    "vector_square",
    "weights_sensitivity",
    "worst_weights_squared",
]
