"""Attacks on models, for an auditor: recover columns, find members, guess labels."""

from typing import TYPE_CHECKING

from colonnade.lazy import exports

if TYPE_CHECKING:
    from colonnade.audit.attacks.inversion import Inversion as Inversion, Views as Views, invert as invert
    from colonnade.audit.attacks.labels import (
        LabelGuesses as LabelGuesses,
        Returned as Returned,
        infer_labels as infer_labels,
    )
    from colonnade.audit.attacks.membership import (
        Membership as Membership,
        Shadows as Shadows,
        infer_membership as infer_membership,
        likelihood_ratios as likelihood_ratios,
    )
    from colonnade.audit.attacks.odds import confidence as confidence
    from colonnade.audit.attacks.pictures import psnr as psnr, ssim as ssim
    from colonnade.audit.attacks.promises import Promise as Promise, label_accuracy as label_accuracy
    from colonnade.audit.attacks.rates import Rates as Rates
    from colonnade.audit.attacks.shadows import drawn as drawn, shadow_models as shadow_models, shadows_of as shadows_of
    from colonnade.audit.attacks.views import (
        Seen as Seen,
        nearness_of as nearness_of,
        promised as promised,
        returned_by as returned_by,
        seen_of as seen_of,
    )

__all__, __getattr__, __dir__ = exports(
    __name__,
    {
        "odds": "confidence",
        "inversion": "Inversion Views invert",
        "labels": "LabelGuesses Returned infer_labels",
        "membership": "Membership Shadows infer_membership likelihood_ratios",
        "pictures": "psnr ssim",
        "promises": "Promise label_accuracy",
        "rates": "Rates",
        "views": "Seen nearness_of promised returned_by seen_of",
        "shadows": "drawn shadow_models shadows_of",
    },
)
