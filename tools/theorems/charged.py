"""Every event that is charged: where its bound is proven, which function computes it, which test checks it.

Which kinds of study plan a task, what stands around its releases and which games play it is read off the code.
"""

from __future__ import annotations

from .links import Charged, Links, Names

_MOMENTS = "colonnade.protocols.moments.task:Moments"
_DIRECTIONS = "colonnade.kinds.pca.task:SubspaceIteration"
_GRADIENTS = "colonnade.kinds.regression.task:GradientTask"
_EXCHANGE = "colonnade.kinds.glm.task:Exchange"
_KEPT = "colonnade.kinds.glm.kept_scores:KeptScoresTask"
_POLYNOMIALS = "colonnade.kinds.polynomial.task:Polynomials"
_SCORES = "colonnade.kinds.prediction.task:Scores"
_LEVELS = "colonnade.kinds.prediction.task:QuantisedAnswers"
_MARGINALS = "colonnade.kinds.tables.task:Marginals"
_STAGED = "colonnade.kinds.tables.stages:StagedMarginals"
_MIXTURE = "colonnade.kinds.synthesis.mixture.task:MixtureTask"
_EMBEDDINGS = "colonnade.kinds.split.embedding_task:EmbeddingTask"
_NEW = "colonnade.kinds.split.embedding_task:NewEmbeddingTask"
_ADAPTIVE = "colonnade.kinds.split.embedding_task:AdaptiveTask"
_SKETCH = "colonnade.kinds.sketch.model:SketchTask"

_NORMAL = "colonnade.protocols.moments.task:normal_release"
_LAPLACE = "colonnade.protocols.moments.task:laplace_release"

_SECOND_MOMENTS = Links(
    (
        "moments-sensitivity#2-one-row-added-or-removed",
        "moments-sensitivity#3-one-row-replaced-2-not-2",
        "moments-sensitivity#7-only-some-columns-of-a-row-replaced|Theorem",
        "heads-from-moments#1-the-mechanism|Theorem",
    ),
    (
        "colonnade.privacy.sensitivity:moments_sensitivity",
        "colonnade.privacy.sensitivity:changed_columns_sensitivity",
        "colonnade.protocols.moments.task:normal_release",
    ),
    (
        "tests/privacy/test_sensitivity.py::test_moments_move_no_further_than_claimed",
        "tests/privacy/test_sensitivity.py::test_random_rows_with_fixed_columns_move_no_further",
        "tests/protocols/moments/test_laws.py::test_one_person_moves_each_release_by_no_more_than_it_says",
    ),
)
_HIDDEN_MOMENTS = Links(
    (
        "moments-sensitivity#3-one-row-replaced-2-not-2",
        "hidden-members#3-how-far-the-release-moves|Theorem 1",
    ),
    ("colonnade.protocols.moments.task:MomentsBounds.changed",),
    ("tests/protocols/moments/test_moments.py::test_one_persons_records_move_each_release_by_no_more_than_it_says",),
)
_GROUPS = Links(
    ("functional-sensitivity#7-groups-of-columns|Theorem (one row's groups replaced)",),
    (
        "colonnade.privacy.sensitivity:grouped_l1",
        "colonnade.privacy.sensitivity:grouped_replace_l1",
    ),
    (
        "tests/privacy/test_sensitivity.py::test_no_corner_moves_further_than_the_bound",
        "tests/privacy/test_sensitivity.py::test_random_integer_rows_move_no_further",
    ),
)
_HIDDEN_GROUPS = Links(
    (
        "functional-sensitivity#7-groups-of-columns|Theorem (one row's groups replaced)",
        "hidden-members#3-how-far-the-release-moves|Theorem 2",
    ),
    ("colonnade.protocols.moments.task:MomentsBounds.replaced_l1",),
    (
        "tests/protocols/moments/test_moments.py::test_a_row_that_disappears_may_move_more_than_one_that_is_replaced",
        "tests/protocols/moments/test_moments.py::test_one_persons_records_move_each_release_by_no_more_than_it_says",
    ),
)
_SCALES = Links(
    (
        "functional-sensitivity#5-several-scales",
        "functional-sensitivity#8-one-partys-columns-and-parties-that-name-their-own-noise|Theorem",
    ),
    (
        "colonnade.protocols.moments.task:MomentsBounds.added_l1",
        "colonnade.protocols.moments.task:MomentsBounds.replaced_l1",
        "colonnade.protocols.moments.task:with_own_budgets",
    ),
    (
        "tests/protocols/moments/test_laws.py::test_bottom_up_laplace_noise_keeps_every_partys_epsilon",
        "tests/protocols/moments/test_laws.py::test_one_person_moves_each_release_by_no_more_than_it_says",
    ),
)
_HIDDEN_SCALES = Links(
    (
        "functional-sensitivity#5-several-scales",
        "hidden-members#3-how-far-the-release-moves|Theorem 2",
    ),
    ("colonnade.protocols.moments.task:MomentsBounds.replaced_l1",),
    ("tests/protocols/moments/test_moments.py::test_every_record_moves_the_entries_of_all_scales",),
)
_FIXED = "fixed-batches#theorem"
_EPOCHS = "tests/privacy/test_sampling.py::test_a_person_pays_for_epochs_not_for_openings"
_BATCH_GRADIENTS = Links(
    (
        "gradient-sensitivity#1-one-row-added-or-removed|Theorem",
        "gradient-sensitivity#2-one-row-replaced-less-than-twice|Theorem",
        "gradient-sensitivity#6-the-iterative-protocol",
    ),
    (
        "colonnade.kinds.regression.sensitivity:gradient_sensitivity",
        "colonnade.kinds.regression.task:GradientTask.sensitivity",
    ),
    (
        "tests/kinds/regression/test_gradients.py::test_no_integer_row_moves_a_gradient_further",
        "tests/kinds/regression/test_gradients.py::test_no_person_moves_a_round_by_more_than_its_sensitivity",
    ),
)
_EXCHANGED = "exchange-sensitivity#3-more-parties-and-what-else-may-be-published"
_ALL_MARGINALS = Links(
    (
        "marginals#2-one-person-added-or-removed|Theorem 1",
        "marginals#3-one-person-replaced|Theorem 2",
    ),
    (
        "colonnade.kinds.tables.sensitivity:marginals_sensitivity",
        "colonnade.kinds.tables.sensitivity:changed_cells_sensitivity",
    ),
    ("tests/kinds/tables/test_sensitivity.py::test_the_bounds_are_attained_and_never_exceeded",),
)
_SUMS = Links(
    (
        "mixture-sensitivity#1-the-theorem|Theorem",
        "mixture-sensitivity#2-integers",
        "mixture-rounds#2-what-the-committee-computes|Lemma 3",
        "mixture-rounds#3-sums",
        "mixture-rounds#4-what-a-round-tells|Lemma 6",
    ),
    (
        "colonnade.kinds.synthesis.sensitivity:MixtureBounds",
        "colonnade.kinds.synthesis.mixture.task:MixtureTask.sensitivity",
        "colonnade.kinds.synthesis.mixture.task:MixtureTask.distance",
    ),
    (
        "tests/kinds/synthesis/mixture/test_prices.py::test_no_row_contributes_more",
        "tests/kinds/synthesis/mixture/test_prices.py::test_the_farthest_of_all_pairs_of_small_rows_reach_the_bound",
        "tests/kinds/synthesis/mixture/test_prices.py::test_no_row_weighs_more_than_its_bound_whatever_was_dealt",
        "tests/kinds/synthesis/mixture/test_prices.py::test_joint_clipping_costs_its_clip",
        "tests/kinds/synthesis/mixture/test_prices.py::test_what_is_charged_for_masks_and_room_is_small",
    ),
)
_TOLD = Links(
    ("embedding-releases#2-the-theorem|Theorem", "embedding-releases#3-three-schedules"),
    ("colonnade.kinds.split.embedding_task:squared_movement",),
    (
        "tests/kinds/split/test_embedding_task.py::test_an_embedding_moves_by_twice_its_clip_in_whole_numbers",
        "tests/kinds/split/test_audit.py::test_no_embedding_moves_further_than_is_charged",
    ),
)
_TOTAL = Links(
    ("moments-sensitivity#9-other-sums",),
    ("colonnade.privacy.sensitivity:Sensitivity.from_l2", "colonnade.kinds.sketch.model:SketchTask.sensitivity"),
    (
        "tests/privacy/test_theory.py::test_no_integer_vector_is_longer_than_its_sensitivity_says",
        "tests/kinds/sketch/test_sketch.py::test_a_sketch_of_gradients_costs_what_gradients_cost",
        "tests/kinds/sketch/test_sketch.py::test_a_sketch_of_one_full_round_costs_what_second_moments_cost",
    ),
    "priced, not run",
)


def _and(links: Links, theorems: Names, tests: Names = (), functions: Names = (), besides: Names = ()) -> Links:
    return Links(
        (*links.theorems, *theorems),
        (*links.functions, *functions),
        (*links.tests, *tests),
        links.no_game,
        (*links.besides, *besides),
    )


CHARGED = (
    # second moments
    Charged(_MOMENTS, "second moments", "moments-sensitivity", _NORMAL, _SECOND_MOMENTS),
    Charged(_MOMENTS, "second moments", "moments-sensitivity, hidden-members", _NORMAL, _HIDDEN_MOMENTS),
    Charged(_MOMENTS, "second moments", "functional-sensitivity", _LAPLACE, _GROUPS),
    Charged(_MOMENTS, "second moments", "functional-sensitivity, hidden-members", _LAPLACE, _HIDDEN_GROUPS),
    Charged(_MOMENTS, "second moments, each scale", "functional-sensitivity", _LAPLACE, _SCALES),
    Charged(_MOMENTS, "second moments, each scale", "functional-sensitivity, hidden-members", _LAPLACE, _HIDDEN_SCALES),
    # rounds
    Charged(
        _DIRECTIONS,
        "products of second moments with directions",
        "subspace-iteration",
        f"{_DIRECTIONS}.event",
        Links(
            (
                "subspace-iteration#2-one-person-all-rounds-together|Theorem 1",
                "subspace-iteration#3-directions-that-depend-on-what-was-opened|Lemma 2",
            ),
            (
                "colonnade.kinds.pca.sensitivity:products_sensitivity",
                "colonnade.kinds.pca.sensitivity:changed_products_sensitivity",
            ),
            (
                "tests/kinds/pca/test_directions.py::test_no_row_moves_the_products_of_all_rounds_further",
                "tests/kinds/pca/test_directions.py::test_changing_some_columns_moves_no_more_than_that",
                "tests/kinds/pca/test_directions.py::test_adaptive_shifts_of_bounded_total_cost_no_more_than_one",
            ),
        ),
    ),
    Charged(_GRADIENTS, "batch gradients", "gradient-sensitivity", f"{_GRADIENTS}.event", _BATCH_GRADIENTS),
    Charged(
        _GRADIENTS,
        "batch gradients",
        "gradient-sensitivity, fixed-batches",
        f"{_GRADIENTS}.event",
        _and(
            _BATCH_GRADIENTS,
            (_FIXED,),
            ("tests/kinds/regression/test_gradients.py::test_nobody_changes_batch_when_another_leaves",),
            besides=(_EPOCHS,),
        ),
    ),
    # exchanged scores and slopes
    Charged(
        _EXCHANGE,
        "slopes of an owner",
        "alternating-fits",
        f"{_EXCHANGE}._event",
        Links(
            ("alternating-fits#2-the-active-party|Theorem A", "glm-families#1-clipped-slopes|Lemma 1"),
            ("colonnade.kinds.glm.sensitivity:active_fits_squared",),
            ("tests/kinds/glm/test_audit.py::test_hundreds_of_scripted_transcripts_stay_within_what_is_charged",),
        ),
    ),
    Charged(
        _EXCHANGE,
        "scores of an owner",
        "alternating-fits",
        f"{_EXCHANGE}._event",
        Links(
            ("alternating-fits#3-a-passive-party|Theorem P",),
            ("colonnade.kinds.glm.sensitivity:passive_fits_squared",),
            ("tests/kinds/glm/test_audit.py::test_hundreds_of_scripted_transcripts_stay_within_what_is_charged",),
        ),
    ),
    Charged(
        _EXCHANGE,
        "weights of an owner",
        "alternating-fits",
        f"{_EXCHANGE}._event",
        Links(
            ("alternating-fits#4-what-else-follows",),
            (
                "colonnade.kinds.glm.sensitivity:passive_fits_weights",
                "colonnade.kinds.glm.sensitivity:active_fits_weights",
            ),
            ("tests/kinds/glm/test_audit.py::test_weights_move_within_the_ball",),
            besides=(
                "tests/kinds/glm/test_kept_scores.py::test_weights_of_two_neighbours_differ_by_the_drift_at_most",
            ),
        ),
    ),
    Charged(
        _EXCHANGE,
        "scores of an owner",
        "exchange-sensitivity",
        f"{_EXCHANGE}._event",
        Links(
            ("exchange-sensitivity#2-the-theorem|Theorem H",),
            ("colonnade.kinds.glm.sensitivity:passive_squared",),
            ("tests/kinds/glm/test_audit.py::test_hundreds_of_scripted_transcripts_stay_within_what_is_charged",),
        ),
    ),
    Charged(
        _EXCHANGE,
        "slopes of an owner",
        "exchange-sensitivity",
        f"{_EXCHANGE}._event",
        Links(
            ("exchange-sensitivity#2-the-theorem|Theorem H", "glm-families#1-clipped-slopes|Lemma 1"),
            ("colonnade.kinds.glm.sensitivity:active_squared",),
            ("tests/kinds/glm/test_audit.py::test_hundreds_of_scripted_transcripts_stay_within_what_is_charged",),
        ),
    ),
    Charged(
        _EXCHANGE,
        "weights of an owner",
        "exchange-sensitivity",
        f"{_EXCHANGE}._event",
        Links(
            (_EXCHANGED,),
            ("colonnade.kinds.glm.sensitivity:weights_sensitivity",),
            ("tests/kinds/glm/test_audit.py::test_hundreds_of_scripted_transcripts_stay_within_what_is_charged",),
            besides=(
                "tests/kinds/glm/test_kept_scores.py::test_weights_of_two_neighbours_differ_by_the_drift_at_most",
            ),
        ),
    ),
    Charged(
        _KEPT,
        "blurred weights of an owner",
        "exchange-sensitivity",
        f"{_KEPT}._event",
        Links(
            (_EXCHANGED, "alternating-fits#4-what-else-follows"),
            ("colonnade.kinds.glm.planning:senders", f"{_KEPT}.weights_event"),
            (
                "tests/kinds/glm/test_kept_scores.py::test_weights_of_two_neighbours_differ_by_the_drift_at_most",
                "tests/kinds/glm/test_kept_scores.py::test_one_question_costs_a_score_and_the_weights",
            ),
        ),
    ),
    Charged(
        _KEPT,
        "new scores of an owner",
        "exchange-sensitivity",
        f"{_KEPT}._event",
        Links(
            (_EXCHANGED,),
            (f"{_KEPT}.score_event",),
            (
                "tests/kinds/glm/test_kept_scores.py::test_one_question_costs_a_score_and_the_weights",
                "tests/kinds/glm/test_kept_scores.py::test_the_budget_is_kept_whatever_the_bounds",
            ),
        ),
    ),
    # sums and answers
    Charged(
        _POLYNOMIALS,
        "polynomial sums",
        "polynomial-sensitivity",
        f"{_POLYNOMIALS}.event",
        Links(
            (
                "polynomial-sensitivity#3-one-monomial|Theorem",
                "polynomial-sensitivity#4-parts-of-a-map|Theorem",
                "polynomial-sensitivity#7-what-an-owner-can-learn-about-others",
            ),
            (
                "colonnade.kinds.polynomial.sensitivity:monomials_sensitivity",
                "colonnade.kinds.polynomial.sensitivity:others_sensitivity",
            ),
            (
                "tests/kinds/polynomial/test_polynomial.py::test_no_integer_row_exceeds_a_bound",
                "tests/kinds/polynomial/test_polynomial.py::test_columns_of_others_move_no_further_than_is_said",
            ),
        ),
    ),
    Charged(
        _SCORES,
        "scores",
        "joint-prediction",
        f"{_SCORES}.event",
        Links(
            ("joint-prediction#2-the-box", "joint-prediction#3-theorem-with-noise"),
            ("colonnade.kinds.prediction.model:bound_score_part", f"{_SCORES}.event"),
            (
                "tests/kinds/prediction/test_model.py::test_no_row_leaves_the_bounds",
                "tests/kinds/prediction/test_scores.py::"
                "test_no_two_people_are_told_apart_better_than_the_printed_epsilon_says",
            ),
        ),
    ),
    Charged(
        _SCORES,
        "scores",
        "",
        f"{_SCORES}.event",
        Links(
            ("joint-prediction#4-statement-without-noise",),
            (f"{_SCORES}.event",),
            (
                "tests/kinds/prediction/test_scores.py::"
                "test_the_exact_scores_cost_infinity_to_the_entitled_party_and_nothing_to_anybody_else",
            ),
            "nothing promised",
        ),
    ),
    Charged(
        _LEVELS,
        "levels of an owner",
        "levels-of-scores",
        f"{_LEVELS}.event_of",
        Links(
            ("levels-of-scores#2-theorem", "randomised-response#theorem"),
            (f"{_LEVELS}.odds", "colonnade.privacy.noise.local_mechanisms:odds_of_epsilon"),
            (
                "tests/kinds/prediction/test_scores.py::"
                "test_epsilon_is_shared_by_those_who_are_asked_and_never_exceeded",
                "tests/kinds/prediction/test_scores.py::test_a_coalition_is_charged_for_those_outside_of_it",
                "tests/privacy/test_noise_law.py::test_odds_are_the_largest_allowed",
            ),
        ),
    ),
    # synthetic data
    Charged(_MARGINALS, "marginals", "marginals", f"{_MARGINALS}.event", _ALL_MARGINALS),
    Charged(
        _MARGINALS,
        "marginals",
        "marginals, hidden-members",
        f"{_MARGINALS}.event",
        Links(
            (
                "marginals#6-people-whom-nobody-can-name|Theorem 3",
                "hidden-members#2-which-tables-are-neighbours|Lemma 1",
            ),
            (f"{_MARGINALS}.sensitivity", f"{_MARGINALS}.others"),
            (
                "tests/kinds/tables/test_marginals.py::test_one_record_can_move_a_whole_person",
                "tests/kinds/tables/test_sensitivity.py::test_with_hidden_members_whether_somebody_is_one_is_played_too",
            ),
        ),
    ),
    *(
        Charged(
            _STAGED,
            release,
            "marginals",
            f"{_MARGINALS}.event",
            _and(
                _ALL_MARGINALS,
                ("marginals#7-two-stages|Theorem 4",),
                (
                    "tests/kinds/tables/test_sensitivity.py::test_the_price_of_the_second_stage_holds_for_every_way_to_merge",
                    "tests/kinds/tables/test_sensitivity.py::test_a_first_stage_that_is_not_charged_is_seen",
                ),
                (f"{_STAGED}.stages",),
            ),
        )
        for release in ("marginals of narrow bins", "marginals")
    ),
    Charged(_MIXTURE, "mixture sums", "mixture-sensitivity, mixture-rounds", f"{_MIXTURE}.event", _SUMS),
    Charged(
        _MIXTURE,
        "mixture sums",
        "mixture-sensitivity, mixture-rounds, fixed-batches",
        f"{_MIXTURE}.event",
        _and(
            _SUMS,
            (_FIXED,),
            ("tests/kinds/synthesis/mixture/test_prices.py::test_a_party_pays_for_epochs_of_disjoint_batches",),
            besides=(_EPOCHS,),
        ),
    ),
    # split networks
    Charged(
        _EMBEDDINGS,
        "labels of an owner",
        "randomised-response",
        f"{_EMBEDDINGS}.labels_event",
        Links(
            ("randomised-response#theorem", "embedding-releases#4-who-sees-what"),
            (
                "colonnade.privacy.noise.local_mechanisms:odds_of_epsilon",
                "colonnade.privacy.noise_laws:RandomisedResponse.epsilon",
            ),
            (
                "tests/privacy/test_noise_law.py::test_the_law_of_the_answers",
                "tests/kinds/split/test_embedding_task.py::test_told_labels_cost_what_randomised_response_costs",
            ),
        ),
    ),
    Charged(
        _EMBEDDINGS,
        "encoder updates of an owner",
        "embedding-releases",
        f"{_EMBEDDINGS}._event",
        Links(
            ("embedding-releases#2-the-theorem|Theorem", "private-updates#1-one-update"),
            (
                "colonnade.kinds.split.embedding_task:squared_movement",
                f"{_EMBEDDINGS}.update_event",
                "colonnade.kinds.split.embedding_programs:cut_rows",
            ),
            (
                "tests/kinds/split/test_private_training.py::test_no_product_is_ever_longer_than_the_radius",
                "tests/kinds/split/test_private_training.py::test_no_row_is_ever_longer_than_the_radius",
                "tests/kinds/split/test_audit.py::test_no_gradient_moves_a_sum_further_than_is_charged",
                "tests/kinds/split/test_embedding_task.py::"
                "test_every_update_is_charged_as_often_as_a_person_takes_part_and_never_sent",
            ),
        ),
    ),
    Charged(_EMBEDDINGS, "embeddings of an owner", "embedding-releases", f"{_EMBEDDINGS}._event", _TOLD),
    Charged(_EMBEDDINGS, "first embeddings of an owner", "embedding-releases", f"{_EMBEDDINGS}._event", _TOLD),
    Charged(
        _EMBEDDINGS,
        "labels of an owner",
        "",
        f"{_EMBEDDINGS}.labels_event",
        Links(
            ("embedding-releases#4-who-sees-what",),
            (f"{_EMBEDDINGS}.labels_event",),
            (
                "tests/kinds/split/test_embedding_task.py::"
                "test_labels_without_protection_are_said_to_have_none_and_do_not_change_the_noise",
            ),
            "nothing promised",
        ),
    ),
    Charged(
        _ADAPTIVE,
        "embeddings of an owner",
        "",
        f"{_ADAPTIVE}.embeddings_event",
        Links(
            ("embeddings-as-published#what-it-costs",),
            (f"{_ADAPTIVE}.reason",),
            (
                "tests/kinds/split/test_adaptive_task.py::test_one_row_moves_the_later_embeddings_of_all_others",
                "tests/kinds/split/test_adaptive_task.py::test_nothing_is_promised_to_those_who_see_messages",
            ),
            "nothing promised",
        ),
    ),
    Charged(
        _ADAPTIVE,
        "slopes of an owner",
        "",
        f"{_ADAPTIVE}.slopes_event",
        Links(
            ("embeddings-as-published#what-it-costs",),
            (f"{_ADAPTIVE}.reason",),
            (
                "tests/kinds/split/test_adaptive_task.py::test_whoever_gets_slopes_back_knows_who_is_of_the_same_class",
                "tests/kinds/split/test_adaptive_task.py::test_the_reason_names_everything_that_slopes_are_made_of",
            ),
            "nothing promised",
        ),
    ),
    Charged(_NEW, "embeddings of an owner", "embedding-releases", f"{_EMBEDDINGS}._event", _TOLD),
    Charged(
        _NEW,
        "embeddings of an owner",
        "",
        f"{_EMBEDDINGS}.embedding_event",
        Links(
            ("embedding-releases#4-who-sees-what",),
            (f"{_EMBEDDINGS}.embedding_event",),
            (
                "tests/kinds/split/test_embedding_task.py::"
                "test_new_people_are_told_once_exactly_or_under_the_same_noise",
            ),
            "nothing promised",
        ),
    ),
    # protocols that are priced before somebody writes them
    Charged(_SKETCH, "sum of contributions", "moments-sensitivity", f"{_SKETCH}.events", _TOTAL),
    Charged(
        _SKETCH,
        "sum of contributions",
        "moments-sensitivity, fixed-batches",
        f"{_SKETCH}.events",
        _and(_TOTAL, (_FIXED,), besides=(_EPOCHS,)),
    ),
)

SERVING = {
    "colonnade.protocols.align.task:AlignmentTask": "it has no epsilon; its statement says what it tells",
    "colonnade.protocols.lanes.lane:LaneTask": "a part of a task, whose events are charged once",
    "colonnade.kinds.prediction.model:StandingScores": "those of scores, once a period",
}
