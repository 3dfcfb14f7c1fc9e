"""From events to figures, and every place where a figure is written."""

from __future__ import annotations

from .charged import CHARGED, SERVING
from .links import Figure, Links, Printed, Tables

_EXCHANGED = "exchange-sensitivity#3-more-parties-and-what-else-may-be-published"

FIGURES = (
    # what an observer sees
    Figure(
        "view",
        "an event as one observer sees it: the noise it knows is subtracted, its own columns tell it nothing",
        Links(
            ("observers#a-view|Proposition", "observers#studies-without-a-committee"),
            ("colonnade.privacy.events:view",),
            (
                "tests/privacy/test_events.py::test_an_observer_subtracts_the_noise_it_knows",
                "tests/privacy/test_observers.py::test_nobody_within_the_threshold_learns_more_than_the_table_says",
            ),
        ),
        ("skellam", "discrete-gaussian"),
    ),
    Figure(
        "encoders",
        "moments of embeddings: the bound on a row holds whatever an encoder that did not see the table makes of it",
        Links(
            ("heads-from-moments#1-the-mechanism|Theorem", "heads-from-moments#2-who-sees-what"),
            ("colonnade.kinds.split.head_strategy:JointEmbeddings.moments",),
            ("tests/kinds/split/test_heads.py::test_rows_are_embeddings_of_one_length_and_the_label_with_its_weight",),
            besides=("tests/kinds/split/test_audit.py::test_moments_of_features_move_nearly_as_far_as_is_charged",),
        ),
        ("split-moments",),
    ),
    Figure(
        "missing noise",
        "the same if owners leave out their part of the noise",
        Links(
            ("missing-noise#the-theorem|Theorem",),
            ("colonnade.privacy.events:view", "colonnade.privacy.statement:Statement.missing_noise"),
            ("tests/privacy/test_observers.py::test_no_set_of_owners_without_noise_tells_more_than_is_stated",),
            "arithmetic",
            ("tests/protocols/test_seats.py::test_what_is_opened_has_the_noise_of_all_others",),
        ),
    ),
    Figure(
        "law",
        "the noise of all owners together has the law of the event, up to 2^-128 a draw",
        Links(
            ("exact-samplers#the-sampler|Theorem", "exact-samplers#the-tail"),
            ("colonnade.privacy.noise_laws:AdditiveNoise.release", "colonnade.privacy.noise_laws:AdditiveNoise.draw"),
            (
                "tests/privacy/test_events.py::test_the_parts_of_all_owners_have_the_variance_that_is_claimed",
                "tests/privacy/test_events.py::test_a_release_says_what_each_owner_adds_and_how_far_a_person_moves_it",
                "tests/privacy/test_noise_exact.py::test_every_value_comes_in_proportion_to_its_mass",
            ),
        ),
        ("skellam", "discrete-gaussian", "discrete-laplace"),
    ),
    Figure(
        "grid",
        "told numbers are put on a grid before noise",
        Links(
            ("grid-noise#proposition-what-rounding-costs",),
            (
                "colonnade.privacy.noise.local_mechanisms:Grid.sensitivity_squared",
                "colonnade.protocols.task:message_event",
            ),
            (
                "tests/privacy/test_grid.py::test_rounding_adds_at_most_one_step_a_coordinate",
                "tests/privacy/test_grid.py::test_sensitivity_is_rounded_up_and_by_less_than_one",
                "tests/protocols/test_roles.py::test_a_told_event_has_the_sensitivity_and_noise_it_is_given",
            ),
        ),
        ("grid",),
    ),
    # routes of the accountant
    Figure(
        "pure",
        "releases without delta: discrete Laplace noise, randomised response",
        Links(
            ("pure-epsilon#two-mechanisms", "pure-epsilon#the-extreme-pair|Theorem"),
            ("colonnade.privacy.accountant:PureProfile",),
            (
                "tests/privacy/test_sampling.py::test_the_curve_of_a_pure_release_is_that_of_randomised_response",
                "tests/privacy/test_theory.py::test_the_curve_of_a_pure_epsilon_is_that_of_two_coins",
            ),
            besides=(
                "tests/privacy/test_theory.py::test_binary_randomised_response_is_the_extreme_pair",
                "tests/privacy/test_theory.py::test_pure_epsilons_add_up",
            ),
        ),
        ("discrete-laplace", "randomised-response"),
        ("pure",),
    ),
    Figure(
        "laplace",
        "what is left of Laplace noise when shares are known: one whole variable, or no promise",
        Links(
            (
                "laplace-shares#at-least-one-whole-variable-left|Theorem",
                "laplace-shares#less-than-one-variable-left|Theorem (many coordinates)",
            ),
            ("colonnade.privacy.events:view", "colonnade.privacy.noise.strip_sampler:generalised_laplace_epsilon"),
            (
                "tests/privacy/test_events.py::test_laplace_noise_protects_while_one_whole_variable_is_left",
                "tests/privacy/test_theory.py::test_the_code_is_the_formula_rounded_up",
            ),
        ),
        ("discrete-laplace",),
    ),
    Figure(
        "renyi",
        "Rényi divergences, summed over releases and converted to epsilon",
        Links(
            (
                "skellam-renyi#statement",
                "skellam-renyi#composition-and-conversion",
                "discrete-gaussian-renyi#theorem-2-a-sum-of-shares|Theorem 2",
                "discrete-gaussian-renyi#theorem-3-the-same-for-many-coordinates|Theorem 3",
                "pure-epsilon#the-extreme-pair|Theorem",
            ),
            ("colonnade.privacy.accounting.mixtures:release_rdp", "colonnade.privacy.accounting.mixtures:RenyiProfile"),
            (
                "tests/privacy/test_accountant.py::test_the_renyi_bound_holds_for_the_exact_divergence",
                "tests/privacy/test_accountant.py::test_the_bounds_for_sums_hold_for_the_exact_divergence",
                "tests/privacy/test_accountant.py::test_rdp_to_epsilon_and_back",
            ),
        ),
        ("skellam", "discrete-gaussian"),
        ("renyi",),
    ),
    Figure(
        "transfer",
        "integer noise accounted for as a Gaussian, every error counted",
        Links(
            (
                "gaussian-transfer#theorem-t|Theorem T",
                "skellam-close-to-gaussian#lemma-t|Lemma T",
                "pure-epsilon#together-with-an-ε-δ-mechanism|Proposition",
            ),
            (
                "colonnade.privacy.noise_laws:skellam_gaussian_gap",
                "colonnade.privacy.accounting.loss_distributions:gaussian_epsilon",
                "colonnade.privacy.accountant:ShiftedProfile",
            ),
            (
                "tests/privacy/test_accountant.py::test_lemma_t_on_exact_probabilities",
                "tests/privacy/test_accountant.py::test_the_claimed_delta_covers_the_exact_one",
                "tests/privacy/test_accountant.py::test_gaussian_epsilon_is_never_too_small",
                "tests/privacy/test_sampling.py::test_pure_beside_gaussian",
            ),
        ),
        ("skellam", "discrete-gaussian"),
        ("gaussian transfer",),
    ),
    Figure(
        "known coins",
        "batches whose coins the observer knows: an average",
        Links(
            ("known-coins#theorem", "known-coins#rényi-form"),
            (
                "colonnade.privacy.accounting.mixtures:GaussianMixture",
                "colonnade.privacy.accounting.mixtures:RenyiMixture",
                "colonnade.privacy.accounting.mixtures:known_batch_rdp",
            ),
            (
                "tests/privacy/test_sampling.py::test_known_coins_against_exact_sums",
                "tests/privacy/test_sampling.py::test_a_known_batch_order_by_order",
            ),
            besides=("tests/privacy/test_sampling.py::test_coins_in_the_view_average_the_hockey_sticks",),
        ),
        ("poisson-sampled", "sqm", "mixture"),
        ("gaussian transfer, averaged over known coins", "renyi, averaged over known coins"),
    ),
    Figure(
        "secret coins",
        "batches whose coins the observer does not know",
        Links(
            ("poisson-sampling#theorem",),
            ("colonnade.privacy.accounting.mixtures:secret_batch_rdp",),
            ("tests/privacy/test_sampling.py::test_a_secret_batch_of_skellam_noise",),
            besides=("tests/privacy/test_sampling.py::test_removing_meets_the_formula_exactly_and_adding_stays_below",),
        ),
        ("poisson-sampled", "sqm", "mixture"),
    ),
    Figure(
        "fixed batches",
        "disjoint public batches: a person pays for epochs, not for openings",
        Links(
            ("fixed-batches#theorem", "fixed-batches#what-has-to-be-true-of-the-batches"),
            ("colonnade.privacy.noise_laws:RepeatedRelease",),
            (
                "tests/privacy/test_theory.py::test_a_repeated_release_costs_what_as_many_releases_cost",
                "tests/kinds/regression/test_gradients.py::test_the_event_says_what_happens",
            ),
            besides=("tests/privacy/test_sampling.py::test_a_person_pays_for_epochs_not_for_openings",),
        ),
        ("sqm",),
    ),
    Figure(
        "losses",
        "losses on a grid, composed by Fourier transforms, for secret batches and pure beside noisy releases",
        Links(
            (
                "privacy-loss-distributions#pairs-losses-domination|Lemma 1",
                "privacy-loss-distributions#the-pairs|Lemma 4",
                "privacy-loss-distributions#floating-point|Theorem E",
            ),
            (
                "colonnade.privacy.accounting.loss_distributions:LossDistribution",
                "colonnade.privacy.accounting.loss_distributions:round_losses",
            ),
            (
                "tests/privacy/test_theory.py::test_losses_of_pure_rounds_are_those_of_binomial_sums",
                "tests/privacy/test_theory.py::test_one_secret_round_covers_both_hockey_sticks_of_its_pair",
            ),
            besides=(
                "tests/privacy/test_sampling.py::test_agrees_with_dp_accounting",
                "tests/privacy/test_theory.py::test_the_error_of_the_fft_is_below_its_bound",
                "tests/privacy/test_sampling.py::test_the_same_noise_by_loss_distributions",
            ),
        ),
        ("poisson-sampled",),
        ("privacy loss distribution",),
    ),
    Figure(
        "twice",
        "replacing a person in secret batches: removing one and adding another",
        Links(
            ("replacing-and-groups#replace-is-remove-and-add|Proposition",),
            ("colonnade.privacy.accountant:DoubledProfile",),
            ("tests/privacy/test_sampling.py::test_replacing_with_secret_coins_costs_twice",),
            "arithmetic",
            ("tests/privacy/test_theory.py::test_replacing_costs_at_most_a_removal_and_an_addition",),
        ),
    ),
    Figure(
        "composition",
        "several releases, or one repeated, are one transcript",
        Links(
            ("observers#composition-over-studies", "skellam-renyi#composition-and-conversion"),
            ("colonnade.privacy.accountant:routes",),
            (
                "tests/privacy/test_accountant.py::test_squares_add_up_under_composition",
                "tests/privacy/test_accountant.py::test_mixed_mechanisms_compose",
            ),
        ),
        ("rounds",),
    ),
    # what is added to delta
    Figure(
        "sampler",
        "the sampler's distance from its law, and the largest epsilon that it leaves",
        Links(
            ("observers#the-samplers-distance-is-part-of-δ", "exact-samplers#the-largest-epsilon"),
            ("colonnade.privacy.accountant:ShiftedProfile", "colonnade.privacy.accountant:ceiling"),
            (
                "tests/privacy/test_accountant.py::test_the_sampler_distance_is_charged",
                "tests/privacy/test_calibrate.py::test_a_release_that_would_need_more_says_so",
            ),
            "arithmetic",
        ),
    ),
    Figure(
        "lost",
        "parts of delta that are lost whatever epsilon is: masks, full batches, proofs of bounds",
        Links(
            (
                "mixture-rounds#4-what-a-round-tells|Lemma 6",
                "active-security#7-inputs|Lemma 16",
                "active-security#10-distances",
            ),
            (
                "colonnade.privacy.accountant:ShiftedProfile",
                "colonnade.kinds.synthesis.mixture.task:MixtureTask.distance",
                "colonnade.protocols.committee_task:CommitteeTask.shown_by_proofs",
            ),
            (
                "tests/privacy/test_accountant.py::test_what_is_lost_is_added_to_delta_as_it_is",
                "tests/kinds/synthesis/mixture/test_prices.py::test_what_is_charged_for_masks_and_room_is_small",
                "tests/protocols/test_roles.py::test_proofs_of_bounds_are_charged_once_for_a_study",
            ),
            "arithmetic",
        ),
    ),
    # figures of one study
    Figure(
        "epsilon",
        "the least epsilon of all routes that hold, and the whole curve of delta",
        Links(
            ("observers#a-view|Proposition", "gaussian-transfer#solving-for-ε"),
            ("colonnade.privacy.accountant:epsilon", "colonnade.privacy.accountant:profile"),
            (
                "tests/privacy/test_accountant.py::test_the_claimed_delta_covers_the_exact_one",
                "tests/privacy/test_accountant.py::test_small_noise_falls_back_to_renyi",
            ),
            "arithmetic",
        ),
    ),
    Figure(
        "statement",
        "one row for each observer, and the largest of them",
        Links(
            ("observers#neighbouring-relations", "observers#coalitions-in-large-studies"),
            ("colonnade.privacy.statement:Statement.of", "colonnade.privacy.statement:LargestEpsilon.of"),
            (
                "tests/privacy/test_statement.py::test_one_row_for_each_observer_the_unprotected_included",
                "tests/privacy/test_observers.py::test_nobody_within_the_threshold_learns_more_than_the_table_says",
                "tests/console/test_pages.py::test_the_largest_epsilon_is_that_of_the_report_and_who_pools_is_named",
            ),
            "arithmetic",
        ),
    ),
    Figure(
        "rounding",
        "a printed epsilon is rounded up",
        Links(
            ("observers#assumptions-printed-with-every-statement",),
            ("colonnade.privacy.statement:format_rounded_up", "colonnade.report.wording:epsilon"),
            (
                "tests/privacy/test_statement.py::test_epsilon_is_rounded_up",
                "tests/report/test_page.py::test_epsilon_and_its_factor_are_never_rounded_down",
            ),
            "arithmetic",
        ),
    ),
    Figure(
        "budget",
        "the least noise that keeps every budget, and the observer who decides it",
        Links(
            ("observers#a-view|Proposition",),
            ("colonnade.privacy.calibrate:least_noise", "colonnade.privacy.calibrate:binding_budget"),
            (
                "tests/privacy/test_calibrate.py::test_the_noise_is_enough_and_hardly_more",
                "tests/privacy/test_calibrate.py::test_every_budget_is_met",
            ),
            "arithmetic",
        ),
    ),
    Figure(
        "odds",
        "how far odds about a person may rise, and chances of conclusions",
        Links(
            ("beliefs#1-conclusions", "beliefs#2-odds|Proposition"),
            ("colonnade.privacy.statement:log_odds", "colonnade.privacy.statement:bound_log_odds"),
            (
                "tests/privacy/test_statement.py::test_the_bound_holds_for_normal_laws_and_epsilon_alone_would_not",
                "tests/privacy/test_statement.py::test_a_statement_bounds_odds_for_every_observer",
                "tests/console/test_pages.py::test_the_sentences_have_the_figures_of_their_theorems",
            ),
            "arithmetic",
        ),
    ),
    Figure(
        "protection",
        "what a regression tells about one party's columns alone",
        Links(
            (
                "functional-sensitivity#8-one-partys-columns-and-parties-that-name-their-own-noise|Theorem",
                "moments-sensitivity#7-only-some-columns-of-a-row-replaced|Theorem",
            ),
            ("colonnade.protocols.moments.task:Moments.protection",),
            (
                "tests/protocols/moments/test_laws.py::"
                "test_laplace_protection_is_the_l1_of_the_partys_columns_over_the_scale",
                "tests/protocols/moments/test_laws.py::"
                "test_a_partys_columns_cost_less_than_a_person_and_grow_with_their_number",
            ),
            "arithmetic",
        ),
    ),
    Figure(
        "guarantees",
        "what messages and kept weights tell about one party's columns alone",
        Links(
            ("alternating-fits#4-what-else-follows", _EXCHANGED),
            ("colonnade.kinds.glm.preflight:protection", "colonnade.kinds.glm.preflight:Guarantees"),
            ("tests/kinds/glm/test_glm.py::test_all_that_leaves_a_party_costs_what_its_releases_cost_together",),
            "arithmetic",
            ("tests/kinds/glm/test_glm.py::test_guarantees_have_a_row_for_everything",),
        ),
    ),
    Figure(
        "lengths of fits",
        "steps do not tell how a fit went",
        Links(
            ("alternating-fits#6-every-fit-ends-and-in-as-many-steps|Proposition",),
            ("colonnade.kinds.glm.losses:certified_fit",),
            (
                "tests/kinds/glm/test_exchange.py::test_a_table_takes_as_many_steps_as_its_neighbours",
                "tests/kinds/glm/test_exchange.py::test_proven_steps_depend_on_public_bounds_alone_and_grow_with_them",
            ),
        ),
        ("time",),
    ),
    Figure(
        "frozen",
        "as published, not proven: what releases of frozen encoders would cost; no promise",
        Links(
            ("embedding-releases#2-the-theorem|Theorem", "embeddings-as-published#what-it-costs"),
            (
                "colonnade.kinds.split.embedding_task:AdaptiveTask.frozen_epsilon",
                "colonnade.kinds.split.embedding_task:embeddings_mu_squared",
            ),
            (
                "tests/kinds/split/test_adaptive_task.py::"
                "test_the_honest_sum_over_epochs_stands_beside_the_published_figure",
                "tests/kinds/split/test_embedding_task.py::test_the_true_epsilon_of_repeated_releases_matches_the_vectors",
            ),
            "nothing promised",
        ),
    ),
    # figures of several studies
    Figure(
        "ledger",
        "what somebody learned from all studies in a ledger, or in one process",
        Links(
            ("across-studies#an-observer-is-a-set-of-keys|Proposition", "across-studies#which-groups"),
            ("colonnade.privacy.ledger:Ledger.totals", "colonnade.privacy.ledger.participants:views_of_group"),
            (
                "tests/privacy/test_ledger.py::test_studies_compose_by_the_accountant_not_by_addition",
                "tests/privacy/test_ledger.py::test_more_members_never_learn_less_and_all_others_learn_most",
                "tests/models/test_federation.py::test_several_fits_add_up_as_one_statement_of_all_their_events",
            ),
            "arithmetic",
        ),
    ),
    Figure(
        "caps",
        "what is left of a cap, and whether a study keeps it",
        Links(
            ("across-studies#which-groups", "across-studies#sums-of-what-was-composed-before"),
            (
                "colonnade.privacy.ledger:Ledger.remaining",
                "colonnade.privacy.ledger.caps:SpendingAccounts.remainders",
                "colonnade.privacy.ledger.caps:SpendingAccounts.refusals",
                "colonnade.privacy.ledger.caps:keeps_cap",
            ),
            (
                "tests/privacy/test_ledger.py::test_what_is_left_of_each_cap",
                "tests/privacy/test_ledger_sums.py::test_costs_never_show_less_than_the_accountant_proves",
                "tests/privacy/test_ledger_sums.py::test_sums_and_everything_composed_anew_agree_on_where_a_cap_ends",
            ),
            "arithmetic",
        ),
    ),
    Figure(
        "a period of scores",
        "scores on demand: a period is charged as one study, however often anybody is asked about in it",
        Links(
            ("joint-prediction#6-questions-that-are-asked-one-after-the-other|Theorem",),
            ("colonnade.federation.scores.kept_answers:KeptAnswers.admit",),
            (
                "tests/federation/scores/test_session.py::"
                "test_an_answer_says_nothing_about_a_table_that_changes_or_stays",
            ),
            besides=(
                "tests/federation/scores/test_session.py::"
                "test_a_period_is_reserved_before_the_first_answer_and_costs_once_however_often_somebody_is_asked_about",
                "tests/federation/scores/test_session.py::test_all_owners_answer_in_one_period_or_not_at_all",
                "tests/federation/scores/test_session.py::"
                "test_where_the_noise_of_several_is_one_nobody_draws_anew_alone",
                "tests/kinds/prediction/test_scores.py::test_what_is_dealt_again_is_opened_again_under_fresh_shares",
            ),
        ),
        ("prediction", "prediction-levels"),
    ),
    Figure(
        "post-processing",
        "what is opened to a party alone is not charged to it, and functions of releases are free",
        Links(
            ("observers#a-view|Proposition", "alternating-fits#4-what-else-follows"),
            ("colonnade.study.party_config:PartyConfig.charged_events", "colonnade.privacy.events:check_sources"),
            (
                "tests/study/test_model_studies.py::test_a_noisy_prediction_is_charged_to_those_who_tell",
                "tests/privacy/test_theory.py::test_post_processing_is_free_only_for_those_who_received_its_source",
            ),
            "arithmetic",
            ("tests/privacy/test_events.py::test_what_was_sent_to_others_is_not_seen",),
        ),
    ),
    # audits
    Figure(
        "audit",
        "a lower bound on epsilon from samples, beside what is promised",
        Links(
            ("audits#the-audit|Theorem A", "audits#the-audit|Theorem B"),
            ("colonnade.audit.registry:profile_audit",),
            (
                "tests/audit/test_distinguish.py::test_the_epsilon_bound_is_seldom_above_the_truth",
                "tests/audit/test_distinguish.py::test_false_alarms_are_rarer_than_promised",
            ),
            "lower bound",
        ),
    ),
    Figure(
        "attacks",
        "how well any attack on members or labels can do under a promise",
        Links(
            (
                "audits#what-a-promise-leaves-to-any-attack|Theorem C",
                "audits#what-a-promise-leaves-to-any-attack|Theorem D",
            ),
            (
                "colonnade.audit.attacks.membership:Promise.of",
                "colonnade.audit.attacks.membership:label_accuracy",
            ),
            (
                "tests/audit/test_attacks.py::test_one_epsilon_bounds_accuracy_and_hits",
                "tests/audit/test_attacks.py::test_randomised_response_gives_away_what_the_bound_says",
            ),
            "arithmetic",
        ),
    ),
)

_STUDY = ("statement", "rounding")
_LEDGER = ("ledger", "rounding")

PRINTED = (
    # the statement itself
    Printed("colonnade.privacy.statement:Statement.__str__", "the table of observers", _STUDY),
    Printed("colonnade.privacy.statement:Statement._repr_html_", "the same in notebooks", _STUDY),
    Printed("colonnade.privacy.statement:_cells", "a row of that table", _STUDY),
    Printed("colonnade.privacy.statement:StatementRow.to_dict", "a row in a record, not rounded", ("statement",)),
    Printed("colonnade.privacy.statement:_bar", "bars of a statement or a ledger", ("statement", "caps", "rounding")),
    Printed(
        "colonnade.privacy.calibrate:BindingBudget.__str__", "the budget that decides the noise", ("budget", "rounding")
    ),
    Printed("colonnade.privacy.calibrate:BindingBudget.to_dict", "the same in a record", ("budget",)),
    Printed(
        "colonnade.privacy.calibrate:BindingBudget.certification_limit",
        "the largest epsilon of a sampler",
        ("sampler",),
    ),
    Printed("colonnade.privacy.accountant:_above_ceiling", "why no epsilon is finite", ("sampler",)),
    Printed(
        "colonnade.privacy.noise_laws:DiscreteLaplace.resolve_view", "what one number would cost at least", ("laplace",)
    ),
    Printed("colonnade.privacy.ledger.caps:_sentence", "why a cap refuses a study", ("caps", "rounding")),
    # terminal
    Printed("colonnade.cli.text_output:binding", "preflight: who decides the noise", ("budget", "rounding")),
    Printed("colonnade.cli.text_output:curves", "delta at some epsilons, in JSON", ("epsilon",)),
    Printed("colonnade.cli.text_output:curve_table", "delta at some epsilons", ("epsilon",)),
    Printed("colonnade.cli.proposals:_largest", "proposals: the largest epsilon, in JSON", ("statement",)),
    Printed("colonnade.cli.proposals:_price", "proposals: the largest epsilon", _STUDY),
    Printed("colonnade.cli.proposals:_ledger_lines", "proposals: what is spent and left", ("caps", "rounding")),
    Printed(
        "colonnade.cli.attacks:verdict_table", "promised and shown, for each game", ("epsilon", "audit", "rounding")
    ),
    Printed("colonnade.study.ledger_view:ledger_text", "a ledger: totals", _LEDGER),
    Printed("colonnade.study.ledger_view:_few", "a ledger: the largest of the rest", _LEDGER),
    Printed("colonnade.study.ledger_view:_line", "a ledger: what is left of a cap", ("caps", "rounding")),
    # models
    Printed("colonnade.models.notebook:_epsilon", "a fitted model in a notebook", _STUDY),
    Printed("colonnade.models.session_budget:SessionTotal.__str__", "all fits of a process or ledger", _LEDGER),
    Printed("colonnade.models.session_budget:SessionTotal._repr_html_", "the same in notebooks", _LEDGER),
    Printed("colonnade.models.session_budget:SessionTotal._remains", "what is left of its caps", ("caps",)),
    Printed(
        "colonnade.models.linear_model:LinearModel._told",
        "a summary: each party's columns alone",
        ("protection", "guarantees", "rounding"),
    ),
    Printed("colonnade.kinds.regression.model:Regression.summary", "the sentence around it", ("protection",)),
    Printed("colonnade.kinds.glm.model:GLM.summary", "the sentence around it", ("guarantees",)),
    Printed("colonnade.kinds.glm.preflight:_cells", "a table of promises", ("guarantees", "rounding")),
    Printed("colonnade.kinds.glm.preflight:Guarantees.to_dict", "the same in a record", ("guarantees",)),
    Printed(
        "colonnade.kinds.split.embeddings_strategy:PublishedStrategy.details",
        "as published, not proven",
        ("frozen", "rounding"),
    ),
    Printed("colonnade.kinds.split.embeddings_strategy:PublishedStrategy.facts", "the same in a record", ("frozen",)),
    # report
    Printed("colonnade.report.wording:epsilon", "every epsilon of a report and of the console", ("rounding",)),
    Printed("colonnade.report.page:_figures", "the largest epsilon, at the top", _STUDY),
    Printed("colonnade.report.privacy:privacy", "the table of observers", _STUDY),
    Printed("colonnade.report.privacy:_meaning", "the largest epsilon in words", ("statement", "odds", "rounding")),
    Printed("colonnade.report.privacy:_together", "all attempts of a study together", _LEDGER),
    Printed("colonnade.report.privacy:_otherwise", "if owners leave out noise", ("missing noise", "rounding")),
    Printed("colonnade.kinds.regression.report:_protection", "each party's columns alone", ("protection", "rounding")),
    Printed("colonnade.kinds.glm.report:_promise", "a table of promises", ("guarantees", "rounding")),
    Printed("colonnade.kinds.split.report:_guarantee", "as published, not proven", ("frozen", "rounding")),
    Printed("colonnade.report.page:_ledger_totals", "a party's own page: this study and all", _LEDGER),
    Printed("colonnade.report.page:_total", "the same, all studies", _LEDGER),
    Printed(
        "colonnade.report.audit_pages:_table", "promised and shown, for each game", ("epsilon", "audit", "rounding")
    ),
    # console, desks and metrics
    Printed("colonnade.console.privacy_explainer:ObserverPrice.epsilon", "an observer of a proposal", _STUDY),
    Printed(
        "colonnade.console.privacy_explainer:ObserverPrice.conclusion", "chances of conclusions", ("odds", "rounding")
    ),
    Printed("colonnade.console.privacy_explainer:ObserverPrice.factor", "how far odds rise", ("odds", "rounding")),
    Printed("colonnade.console.privacy_explainer:ObserverPrice.odds", "the same in words", ("odds", "rounding")),
    Printed("colonnade.console.privacy_explainer:StudyPrices.figures", "the largest epsilon", _STUDY),
    Printed("colonnade.console.privacy_explainer:CapForecast.spent_text", "what is spent", _LEDGER),
    Printed("colonnade.console.privacy_explainer:CapForecast.after_text", "what would be spent", _LEDGER),
    Printed("colonnade.console.privacy_explainer:CapForecast.at_most_text", "a cap", ("caps", "rounding")),
    Printed("colonnade.console.party_pages:cost_of_attempts", "all attempts of a study together", _LEDGER),
    Printed("colonnade.console.party_pages:ledger_values", "totals of a ledger", _LEDGER),
    Printed("colonnade.console.party_pages:describe_served", "what a person costs in a period", _STUDY),
    Printed("colonnade.privacy.statement:spending_chart", "the course of spending", _LEDGER),
    Printed("colonnade.console.hub:format_price", "results: an analyst's row", _STUDY),
    Printed("src/colonnade/console/templates/inbox.html", "who learns most", _STUDY),
    Printed("src/colonnade/console/templates/study.html", "all observers of a proposal", _STUDY),
    Printed("src/colonnade/console/templates/parts.html", "the largest epsilon", _STUDY),
    Printed(
        "colonnade.federation.scores.web_api:describe_model",
        "what a person costs in a period",
        ("statement", "a period of scores"),
    ),
    Printed("colonnade.federation.monitoring:AgentMetrics", "a gauge of what is left of a cap", ("caps",)),
    # audits
    Printed("colonnade.audit.registry:AuditResult.to_dict", "what was shown, in JSON", ("audit",)),
    Printed("colonnade.audit.registry:GameVerdict.to_dict", "what is promised, in JSON", ("epsilon",)),
)

PASSED_ON = {
    "colonnade.privacy.noise_laws:AdditiveNoise.release": "law",
    "colonnade.protocols.task:message_event": "grid",
    "colonnade.study.party_config:PartyConfig.charged_events": "post-processing",
    "colonnade.study.planning:_price_function.events": "budget",
}

_ASKED = "what somebody asked for, as it was written"
_REFUSED = "a mistake in what was asked for"
NO_FIGURE = {
    "colonnade.cli.attacks:conditions": "a heading",
    "colonnade.cli.checks:_plan_text": "a heading",
    "colonnade.cli.text_output:trial": _ASKED,
    "colonnade.cli.initialise:prepare_trial": _ASKED,
    "colonnade.kinds.pca.evaluation:compare": _ASKED,
    "colonnade.kinds.regression.model:Regression.budgets": _REFUSED,
    "colonnade.models.serialization:_forms": "names of learned values",
    "colonnade.kinds.split.model:": "names of parameters",
    "colonnade.privacy.noise.local_mechanisms:odds_of_epsilon": _REFUSED,
    "colonnade.privacy.observers:check_epsilon": _REFUSED,
    "colonnade.privacy.accounting.loss_distributions:gaussian_mu": _REFUSED,
    "colonnade.privacy.statement:Statement.from_dict": "a refusal, without a number",
    "colonnade.report.sections:_numbers": _ASKED,
    "colonnade.report.wording:": "an explanation of the word",
    "colonnade.kinds.split.report:_labels": _ASKED,
    "colonnade.study.party_config:PartyConfig._objections": "no epsilon bounds it, and that is said",
    "colonnade.study.party_config:PartyConfig.key_news": "no epsilon bounds it, and that is said",
}

TABLES = Tables(CHARGED, FIGURES, PRINTED, SERVING, PASSED_ON, NO_FIGURE)
