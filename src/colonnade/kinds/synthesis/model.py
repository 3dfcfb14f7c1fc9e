"""Synthetic people: a table that may be published, from columns that nobody holds together.

With ``method="marginals"`` one noisy release holds all one- and two-way marginals, and with a label all three-way
marginals that contain it. A model is fitted to it, and people are drawn from the model: both are post-processing, which
costs nothing (docs/how-to/synthetic-data.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, Literal, Self, cast

import numpy as np
from numpy.typing import NDArray

from colonnade.drawing.canvas import Picture
from colonnade.errors import DataError, StudyError
from colonnade.kinds.synthesis import card, population
from colonnade.kinds.synthesis.mixture.learners import FittedMixture
from colonnade.kinds.synthesis.mixture.task import (
    BatchSampling,
    ClippingMode,
    InferenceMethod,
    MixtureTask,
    draft_mixture,
    make_learner,
    mixture_details,
    restore_mixture,
)
from colonnade.kinds.synthesis.population import MixturePopulation, Population, SyntheticTable
from colonnade.kinds.synthesis.release_fit import (
    MIN_REFITS,
    CombinedInterval,
    ProductMixture,
    combine_estimates,
    fit_release,
)
from colonnade.kinds.synthesis.report import marginals_chart
from colonnade.kinds.tables import layout as queries
from colonnade.kinds.tables.layout import Binning, MarginalRows, TableLayout, code_columns, plain_bins
from colonnade.kinds.tables.release import Marginal, MarginalsRelease, NoisyMarginals
from colonnade.kinds.tables.stages import StagedMarginals, StagedResult
from colonnade.kinds.tables.task import Marginals
from colonnade.models.base import Estimator, match_people
from colonnade.models.estimates import Estimate
from colonnade.models.federation import Federation
from colonnade.models.planner import (
    NAMES_LABEL,
    STRICT,
    CheckedBy,
    Count,
    InFile,
    PlanDetails,
    Positive,
    Roster,
    RowsAtMost,
    SampleSizeForecast,
    at_least,
    check_dotted,
    check_whole,
)
from colonnade.privacy import Statement, parse_budgets
from colonnade.privacy.noise_laws import DEFAULT_LAW, NORMAL_LAWS, NormalLawName
from colonnade.protocols.roles import Coordinator, Owner
from colonnade.protocols.rows import Rows
from colonnade.randomness import Stream
from colonnade.tables import Table
from colonnade.tables.bins import MAX_BINS
from colonnade.tables.coding import check_constraints, joint_constraints
from colonnade.tables.schema import Constraint

MIN_TABLES = MIN_REFITS + 1
MAX_ROWS, MAX_TABLES = 2**24, 100
_LIMITS = {
    "components": 2000,
    "size": MAX_ROWS,
    "tables": MAX_TABLES,
    "rows_at_most": 2**40,
    "rows": 2**40,
    "iterations": 10**6,
    "even_bins": MAX_BINS,
}
_CHOICES: dict[str, tuple[str, ...]] = {
    "method": ("marginals", "mixture"),
    "noise": NORMAL_LAWS,
    "inference": ("expectation", "variational"),
    "sampling": ("poisson", "disjoint"),
    "clipping": ("local", "joint"),
}
_STEP_PARAMS = ("batch", "sampling", "clip", "clipping", "learning_rate")
_PARAMS_OF_METHOD = {
    "marginals": ("label", "focus", "even_bins", "tables"),
    "mixture": ("rows", "inference", "iterations", "families", *_STEP_PARAMS),
}
"""Parameters that belong to one method alone."""


def validate_params(given: Mapping[str, Any], usual: Mapping[str, Any]) -> None:
    """Raise an error about the first parameter that cannot be, or that its method does not have.

    ``usual`` are the defaults; where one is given, it counts as left out.
    """
    for name, known in _CHOICES.items():
        if given[name] not in known:
            raise StudyError(f"{name} must be one of {', '.join(map(repr, known))}, not {given[name]!r} [ST348]")
    said = {name for name, value in given.items() if _is_given(value, usual[name])}
    other = "mixture" if given["method"] == "marginals" else "marginals"
    _refuse_params(said, _PARAMS_OF_METHOD[other], f'method = "{other}"')
    if given["inference"] == "expectation":
        _refuse_params(said, _STEP_PARAMS, 'inference = "variational"')
    if given["tables"] != 1:
        _refuse_params(said, ("size",), "tables = 1")
    for name, most in _LIMITS.items():
        if given[name] is not None:
            check_whole(name, given[name], 2 if name == "even_bins" else 1, most)
    if 1 < given["tables"] < MIN_TABLES:
        raise StudyError(f"tables must be 1, or at least {MIN_TABLES} for intervals, not {given['tables']} [ST349]")
    _check_focus(given["focus"])
    _check_mixture(given)


def _is_given(value: Any, usual: Any) -> bool:
    """Whether a parameter says something; an empty list or mapping says nothing, whatever the default is."""
    if isinstance(value, np.ndarray):
        return True
    if isinstance(value, Sequence | Mapping) and not isinstance(value, str) and not len(value):
        return False
    return bool(value != usual)


def _check_focus(focus: Any) -> None:
    if isinstance(focus, str) or not isinstance(focus, Sequence):
        raise StudyError(
            f'focus must be a list of pairs such as [["bank.income", "clinic.bmi"]], not {focus!r} [ST350]'
        )
    for pair in focus:
        if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:
            raise StudyError(
                f'focus lists pairs of columns such as ["bank.income", "clinic.bmi"], not {pair!r} [ST351]'
            )


def _check_mixture(given: Mapping[str, Any]) -> None:
    if given["method"] != "mixture":
        return
    if given["rows"] is None:
        raise StudyError('method = "mixture" needs rows, about how many people there are; it is public [ST353]')
    if given["batch"] is not None:
        check_whole("batch", given["batch"], 1, int(given["rows"]))
    for name in ("clip", "learning_rate"):
        value = given[name]
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (number and 0 < value < math.inf):
            raise StudyError(f"{name} must be a positive number, not {value!r} [ST354]")
    families = given["families"]
    if families is not None and not isinstance(families, Mapping):
        raise StudyError(f'families must be a mapping such as {{"bank.age": "gaussian"}}, not {families!r} [ST355]')


def _refuse_params(said: set[str], names: Sequence[str], where: str) -> None:
    if found := [name for name in names if name in said]:
        verb, it = ("is", "it") if len(found) == 1 else ("are", "them")
        raise StudyError(f"{', '.join(found)} {verb} for {where} alone; leave {it} out [ST356]")


Task = Marginals | StagedMarginals | MixtureTask
Published = NoisyMarginals | StagedResult | FittedMixture
_Edges = Annotated[int, STRICT, at_least(1)] | list[float] | list[str]


@dataclass(eq=False, repr=False)
class Synthesizer(Estimator[Task, Published]):
    """A differentially private table of made-up people over vertically partitioned columns.

    Args:
        label: the column that readers will want to predict, written ``party.column``. All three-way marginals that
            contain it are asked for, besides all pairs. Without a label, all pairs alike.
        epsilon: one number for everyone, or a mapping such as ``{"analyst": 1.0, "party": 2.0}``.
        delta: the delta of all these promises.
        method: ``"marginals"`` asks once for counts and fits a model to them; ``"mixture"`` learns a mixture in rounds,
            by sums over people that are weighted by how well each component describes them.
        focus: pairs of columns that should be more exact than others, such as ``[("bank.income", "clinic.bmi")]``.
        bins: how many bins numbers have, one number for all columns or by column, or their edges by column:
            ``{"bank.age": 20, "bank.balance": [0, 1, 100, 10_000]}``. They must not be chosen by looking at data.
        even_bins: merge the bins of each number to so many with about as many people in each. The narrow bins are
            counted first, with noise, at about a tenth of the price.
        components: how many components a mixture has: the one in rounds, or the one that is fitted to marginals.
        size: how many people are drawn; by default about as many as there are.
        tables: how many tables are drawn. Several of them carry the uncertainty of the noise, for intervals.
        impossible: what nobody can be, such as ``"bank.married = true and clinic.age < 16"``, besides what schemas say
            about their own columns. Such people are never published.
        noise: ``"skellam"`` or ``"discrete-gaussian"``.
        rows_at_most: a public limit on the number of people, from which the arithmetic is sized.
        rows: about how many people there are; public. ``"mixture"`` needs it.
        inference: ``"expectation"``, by all people in every round, or ``"variational"``, by steps on batches (DPVI).
        iterations: the rounds of a mixture; all of them are charged.
        families: what describes a column, such as ``{"bank.age": "gaussian"}``; by default numbers have Beta densities.
        batch: people in a batch of ``"variational"``.
        sampling: how its batches are drawn, ``"poisson"`` or ``"disjoint"``.
        clip: how long the derivatives of one person may be there.
        clipping: of each party (``"local"``) or of all together (``"joint"``, as in the paper; slower).
        learning_rate: the size of its steps.
    """

    kind = "synthetic"
    tasks = (Marginals, StagedMarginals, MixtureTask)

    label: Annotated[str | None, InFile(Annotated[str | None, CheckedBy(check_dotted)], None), NAMES_LABEL] = None
    _: KW_ONLY
    epsilon: float | Mapping[str, float]
    delta: float = 1e-5
    method: Literal["marginals", "mixture"] = "marginals"
    focus: Annotated[Sequence[Sequence[str]], InFile(tuple[tuple[str, ...], ...], ())] = ()
    bins: Annotated[Binning | None, InFile(Annotated[int, STRICT, at_least(1)] | dict[str, _Edges] | None, None)] = None
    even_bins: Annotated[int, at_least(2)] | None = None
    components: Count | None = None
    size: Count | None = None
    tables: Count = 1
    impossible: Annotated[Sequence[str], InFile(tuple[str, ...], ())] = ()
    noise: NormalLawName = DEFAULT_LAW
    rows_at_most: RowsAtMost = 2**24
    rows: Count | None = None
    inference: InferenceMethod = "expectation"
    iterations: Count | None = None
    families: Annotated[Mapping[str, str] | None, InFile(dict[str, str] | None, None)] = None
    batch: Count | None = None
    sampling: BatchSampling = "poisson"
    clip: Positive | None = None
    clipping: ClippingMode = "local"
    learning_rate: Positive | None = None

    def plain_parameters(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters as a file holds them."""
        plain: dict[str, Any] = {"impossible": list(given["impossible"]), "bins": plain_bins(given["bins"])}
        plain["focus"] = [list(pair) for pair in given["focus"]]
        plain["families"] = None if given["families"] is None else dict(given["families"])
        usual = super().plain_parameters(given)
        return {name: each.item() if isinstance(each, np.generic) else each for name, each in usual.items()} | plain

    # --- the joint computation

    def plan(self, roster: Roster) -> Task:
        """The least noise that meets every budget."""
        validate_params(self.get_params(), self.defaults())
        budgets = parse_budgets(self.epsilon, self.delta, roster.trust)
        layout = TableLayout.of(roster.schemas, self.bins)
        check_constraints(joint_constraints(roster.schemas, self.impossible), layout.codings)
        if self.method == "mixture":
            return draft_mixture(self.get_params(), roster).calibrate(budgets)
        draft = queries.draft(
            layout,
            roster,
            label=self.label,
            focus=self.focus,
            law=self.noise,
            rows_at_most=int(self.rows_at_most),
            even=None if self.even_bins is None else int(self.even_bins),
        )
        return draft.calibrate(budgets)

    def details(self, task: Any, statement: Statement) -> PlanDetails:
        """How many marginals are asked for, or how many rounds there are."""
        return mixture_details(task) if self._mixes else queries.details(task)

    def outlook(self, roster: Roster, task: Any, rows: int | None) -> SampleSizeForecast | None:
        """How far noise moves a marginal of two columns; no figure for a mixture that is learned in rounds."""
        return None if self._mixes else queries.outlook(task, rows)

    @property
    def _mixes(self) -> bool:
        return self.method == "mixture"

    def _learning(self, task: Any) -> tuple[Any, ...]:
        """What the programs of a mixture take besides: the learner of the rounds."""
        return (make_learner(task),) if self._mixes else ()

    def _mixture_of(self, found: Any) -> Published:
        published: Published = found.fitted if self._mixes else found
        return published

    def owner(self, me: Owner, table: Table, task: Task) -> Published:
        """An owner's program: marginals are all that is computed together, or weighted sums in rounds."""
        rows = table.sorted_by_id().unclipped() if self._mixes else self.summands(me.name, table, task)
        return self._mixture_of(task.programs.owner(me, rows, task, *self._learning(task)))

    def summands(self, party: str, table: Table, task: Task) -> Rows:
        """The codes of the columns."""
        ordered = table.sorted_by_id()
        return MarginalRows(ordered, code_columns(party, ordered.schema, self.bins))

    def coordinator(self, me: Coordinator, task: Task) -> Published:
        """The coordinator's program."""
        return self._mixture_of(task.programs.coordinator(me, task, *self._learning(task)))

    def simulate_result(self, tables: Mapping[str, Table], task: Task, stream: Stream) -> Published:
        """What the protocol would publish about these tables, whose rows are the same people in the same order."""
        layout = TableLayout.of({party: tables[party].schema for party in task.owners}, self.bins)
        rows = {
            party: tables[party].unclipped().matrix() if self._mixes else layout.codes(party, tables[party])
            for party in task.owners
        }
        return self._mixture_of(task.programs.simulate(rows, task, *self._learning(task), stream))

    # --- what was learned

    def finish(self, result: Published) -> None:
        """Fit a model to the release, or take over the mixture: no data and no budget."""
        layout = TableLayout.of(self.schemas_, self.parameters_["bins"])
        if self.parameters_["method"] == "mixture":
            self._set_population(self._mixed(layout, cast("FittedMixture", result)))
            return
        found = cast("NoisyMarginals | StagedResult", result)
        merged = None if found.merged is None else [list(new) for new in found.merged]
        if merged is not None:
            layout = layout.merge_bins(merged)
        self._set_population(self._fit(layout, MarginalsRelease.of(found.second)), merged)

    def _fit(self, layout: TableLayout, release: MarginalsRelease) -> Population:
        rules, components = self._rules(), self.parameters_["components"]
        return Population(layout, release, fit_release(release, layout.sizes, components, layout.boxes(rules)), rules)

    def refit(self, *, components: int | None = None) -> Self:
        """Fit a model to the release again, perhaps with other components: no data and no budget.

        For a release whose model could not be fitted, which is kept all the same because it was paid for.
        """
        self._check_fitted()
        if self.method == "mixture":
            raise StudyError('refit is for method = "marginals", which keeps its release; fit a mixture again [ST373]')
        before = self.parameters_
        self.parameters_ = before | ({} if components is None else {"components": components})
        try:
            validate_params(self.parameters_, self.defaults())
            people = self._fit(self.population_.layout, self.population_.release)
            people.require_model()
        except BaseException:
            self.parameters_ = before
            raise
        self.set_params(components=self.parameters_["components"])
        self._set_population(people, self.merged_)
        return self

    def _mixed(self, layout: TableLayout, mixture: FittedMixture) -> MixturePopulation:
        return MixturePopulation.of(layout, mixture, int(self.parameters_["rows"]), self._rules())

    def _rules(self) -> tuple[Constraint, ...]:
        return joint_constraints(self.schemas_, self.parameters_["impossible"])

    def _set_population(self, people: Population, merged: list[list[int]] | None = None) -> None:
        """``merged`` are the new codes of narrow bins, for each column, where a first stage merged them."""
        self.population_, self.merged_ = people, merged
        self.feature_names_in_ = list(people.layout.names)
        self.count_ = people.count

    def learned_values(self) -> dict[str, Any]:
        """What was asked for; all numbers are among the arrays."""
        layout, asked = self.population_.layout, self.population_.release.asked
        also: dict[str, Any] = {} if self.merged_ is None else {"merged": self.merged_}
        if isinstance(why := self.population_.fitted, str):
            also["unfitted"] = why
        return {"asked": asked, "names": list(layout.names), "sizes": list(layout.sizes)} | also

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The release and the fitted model, or the mixture."""
        fitted = self.population_.fitted
        found = fitted.arrays() if isinstance(fitted, ProductMixture) else {}
        return dict(self.population_.public) | {f"model_{name}": each for name, each in found.items()}

    def restore(self, learned: dict[str, Any]) -> None:
        """Set the learned attributes from plain values and arrays."""
        validate_params(self.parameters_, self.defaults())
        layout, arrays = TableLayout.of(self.schemas_, self.parameters_["bins"]), learned["arrays"]
        if (merged := learned.get("merged")) is not None:
            layout = layout.merge_bins(merged)
        if learned["names"] != list(layout.names) or learned["sizes"] != list(layout.sizes):
            raise ValueError("columns and codes do not belong together [VA075]")
        if self.method == "mixture":
            self._set_population(self._mixed(layout, restore_mixture(self.schemas_, self.parameters_, arrays)))
            return
        own = {name.removeprefix("model_"): each for name, each in arrays.items() if name.startswith("model_")}
        why = learned.get("unfitted")
        found = ProductMixture.from_arrays(own) if own or why is None else str(why)
        if isinstance(found, ProductMixture) and found.sizes != layout.sizes:
            raise ValueError("model and columns do not belong together [VA076]")
        release = MarginalsRelease.from_arrays(learned["asked"], arrays, layout.sizes)
        self._set_population(Population(layout, release, found, self._rules()), merged)

    # --- made-up people, and what is known about the real ones

    def sample(self, n: int | None = None, *, seed: int = 0) -> Any:
        """An Arrow table of ``n`` made-up people; by default as many as ``size`` says, or as there are about.

        The same seed gives the same people: they are drawn by public randomness, from what was published alone.
        """
        self._check_fitted()
        rows = self.usual_size if n is None else n
        check_whole("n", rows, 1, MAX_ROWS)
        check_whole("seed", seed, 0, 2**63)
        return self.population_.sample_table(int(rows), int(seed)).table

    @property
    def usual_size(self) -> int:
        """How many people a table has where nobody says how many: about as many as there are."""
        asked = self.parameters_["size"]
        return min(MAX_ROWS, max(1, round(self.count_))) if asked is None else int(asked)

    def marginal(self, *names: str) -> Marginal:
        """How many people have each combination of values of these columns, with the noise in each number."""
        self._check_fitted()
        return self.population_.marginal(names)

    def marginals(self) -> dict[str, dict[str, Estimate]]:
        """For each column the share of the people who have each value, as released, with the deviation of its noise."""
        self._check_fitted()
        return population.column_shares(self.population_)

    def means(self) -> dict[str, Estimate]:
        """The mean of each number, by the bins that were counted, with the deviation of its noise."""
        self._check_fitted()
        return population.column_means(self.population_)

    def interval(
        self, estimate: Callable[[Any], tuple[float, float]], *, level: float = 0.95, tables: int | None = None
    ) -> CombinedInterval:
        """An interval for a figure of the people, the noise included.

        ``estimate`` takes a table and returns the figure with its usual variance, as if the table were real people. It
        is called for several tables (by default as many as ``tables`` says, or 20), and the answers are combined.
        """
        self._check_fitted()
        several = self._sample_tables(max(int(self.parameters_["tables"]), 20) if tables is None else tables)
        found = [estimate(each.table) for each in several]
        return combine_estimates([value for value, _ in found], [variance for _, variance in found], level)

    def _sample_tables(self, tables: int) -> list[SyntheticTable]:
        """The table of the model, and those of models of releases with redrawn noise."""
        check_whole("tables", tables, MIN_TABLES, MAX_TABLES)
        size = min(MAX_ROWS, max(1, round(self.count_)))
        return [
            each.sample_table(size, 0) for each in (self.population_, *self.population_.redraw_noise(int(tables) - 1))
        ]

    def log_likelihood(
        self, people: Federation | Mapping[str, Any], *, id: str | None = None, same_order: bool = False
    ) -> NDArray[np.float64]:
        """The logarithm of the chance of each person's codes, for people whose columns lie in one place.

        People of a federation come in the order of their ids, compared as text. People of a mapping from party to table
        come in the order of the first table. With ``id``, the name of the id column, and for tables that were read with
        ids, other tables are put into that order; ``same_order=True`` says that the k-th row of each is one person.
        """
        self._check_fitted()
        given = people.tables() if isinstance(people, Federation) else people
        if not isinstance(given, Mapping):
            raise DataError("log_likelihood takes a Federation, or a mapping from each party to its table [DA100]")
        if missing := [party for party in self.schemas_ if party not in given]:
            raise DataError(f"no table of {', '.join(missing)}; log_likelihood needs one of each party [DA101]")
        found = match_people(given, self.schemas_, id, "log_likelihood", same_order=same_order)
        return self.population_.log_likelihood(found)

    # --- for people

    def picture(self) -> Picture:
        """Shares of the people, column by column."""
        return Picture([marginals_chart(self.population_)])

    @property
    def in_short(self) -> str:
        """What was learned, in one line."""
        if isinstance(self.population_.fitted, str):
            return "a noisy release, to which no model was fitted yet"
        return f"{self.usual_size:,} made-up people with {len(self.feature_names_in_)} columns, from a noisy release"

    def summary(self) -> list[str]:
        """What was released, and how well the model fits it."""
        self._check_fitted()
        return card.summary_lines(self.population_, self.usual_size)

    def published_files(self) -> dict[str, bytes]:
        """The table as Parquet and CSV, its data dictionary, and the card that says what it is good for."""
        tables = int(self.parameters_["tables"])
        drawn = [self.population_.sample_table(self.usual_size, 0)] if tables == 1 else self._sample_tables(tables)
        releases = 1 if self.merged_ is None else 2
        about = card.CardContext(self.population_, self.schemas_, self.parameters_, self.privacy_, releases)
        return card.table_files(about, drawn)
