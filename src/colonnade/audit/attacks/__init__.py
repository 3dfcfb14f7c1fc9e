"""Attacks on models, for an auditor: recover columns, find members, guess labels."""

from typing import TYPE_CHECKING

from colonnade.lazy import lazy_exports

if TYPE_CHECKING:
    from colonnade.audit.attacks.inversion import (
        Inversion as Inversion,
        InversionData as InversionData,
        invert as invert,
        psnr as psnr,
        ssim as ssim,
    )
    from colonnade.audit.attacks.membership import (
        LabelGuesses as LabelGuesses,
        Membership as Membership,
        Promise as Promise,
        Rates as Rates,
        ReturnedGradients as ReturnedGradients,
        ShadowModels as ShadowModels,
        confidence as confidence,
        infer_labels as infer_labels,
        infer_membership as infer_membership,
        label_accuracy as label_accuracy,
        likelihood_ratios as likelihood_ratios,
    )
    from colonnade.audit.attacks.views import (
        ObservedPeople as ObservedPeople,
        collect_gradients as collect_gradients,
        draw_members as draw_members,
        fit_shadows as fit_shadows,
        nearness_to_embeddings as nearness_to_embeddings,
        observe_people as observe_people,
        read_promise as read_promise,
        shadow_models as shadow_models,
    )

__all__, __getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "inversion": "Inversion InversionData invert psnr ssim",
        "membership": (
            "LabelGuesses Membership Promise Rates ReturnedGradients ShadowModels confidence infer_labels "
            "infer_membership label_accuracy likelihood_ratios"
        ),
        "views": (
            "ObservedPeople collect_gradients draw_members fit_shadows nearness_to_embeddings observe_people "
            "read_promise shadow_models"
        ),
    },
)
