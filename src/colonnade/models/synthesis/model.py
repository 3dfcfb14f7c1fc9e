"""Synthetic people: a table that may be published, from columns that nobody holds together.

With ``method="marginals"`` one noisy release holds all one- and two-way marginals, and with a label all three-way
marginals that contain it. A model is fitted to it, and people are drawn from the model: both are post-processing, which
costs nothing (docs/synthetic-data.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Ge
from numpy.typing import NDArray

from colonnade.errors import DataError, StudyError
from colonnade.models.base import Estimator
from colonnade.models.federation import Federation, Roster
from colonnade.models.newcomers import table_of
from colonnade.models.parameters import NAMES_LABEL, STRICT, Checked, Count, InFile, RowsAtMost, check_whole, dotted
from colonnade.models.planner import Details
from colonnade.models.synthesis import asking, card
from colonnade.models.synthesis.fit import COMPONENTS, fit
from colonnade.models.synthesis.layout import AskedRows, Bins, Layout, coded
from colonnade.models.synthesis.population import Population
from colonnade.models.synthesis.products import Products
from colonnade.models.synthesis.release import Marginal, Release
from colonnade.models.synthesis.tree import Tree, fit_tree
from colonnade.privacy import Statement, parse_budgets
from colonnade.privacy.additive import NormalLaw
from colonnade.protocols.marginals import programs as marginals
from colonnade.protocols.marginals.published import NoisyMarginals
from colonnade.protocols.marginals.task import Marginals
from colonnade.protocols.roles import Coordinator, Owner
from colonnade.randomness import Stream
from colonnade.tables import Table
from colonnade.tables.joint import joint_rules

MOST_COMPONENTS, MOST_ROWS, MOST_TABLES = 2000, 2**24, 100

Task = Marginals
Published = NoisyMarginals
_Edges = Annotated[int, STRICT, Ge(1)] | list[float]
_Pairs = Annotated[Sequence[Sequence[str]], InFile(tuple[tuple[str, ...], ...], ())]


@dataclass(eq=False, repr=False)
class Synthesizer(Estimator[Task, Published]):
    """A differentially private table of made-up people over vertically partitioned columns.

    Args:
        label: the column that readers will want to predict, written ``party.column``. All three-way marginals that
            contain it are asked for, besides all pairs. Without a label, all pairs alike.
        epsilon: one number for everyone, or a mapping such as ``{"analyst": 1.0, "party": 2.0}``.
        delta: the delta of all these promises.
        method: ``"marginals"`` asks once for counts and fits a model to them.
        focus: pairs of columns that should be more exact than others, such as ``[("bank.income", "clinic.bmi")]``.
        bins: how many bins numbers have, one number for all columns or by column, or their edges by column:
            ``{"bank.age": 20, "bank.balance": [0, 1, 100, 10_000]}``. They must not be chosen by looking at data.
        model: ``"products"`` fits a mixture of products to all that was asked for; ``"tree"`` the best tree of pairs.
        components: how many components the mixture has.
        rows: how many people are drawn; by default about as many as there are, by the noisy count.
        tables: how many tables are drawn. Several of them carry the uncertainty of the noise, for intervals.
        impossible: what nobody can be, such as ``"bank.married = true and clinic.age < 16"``, besides what schemas say
            about their own columns. Such people are never published.
        noise: ``"skellam"`` or ``"discrete-gaussian"``.
        rows_at_most: a public limit on the number of people, from which the arithmetic is sized.
    """

    kind = "synthetic"
    tasks = (Marginals,)

    label: Annotated[str | None, InFile(Annotated[str | None, Checked(dotted)], None), NAMES_LABEL] = None
    _: KW_ONLY
    epsilon: float | Mapping[str, float]
    delta: float = 1e-5
    method: Literal["marginals"] = "marginals"
    focus: _Pairs = ()
    bins: Annotated[Bins | None, InFile(Annotated[int, STRICT, Ge(1)] | dict[str, _Edges] | None, None)] = None
    model: Literal["products", "tree"] = "products"
    components: Count | None = None
    rows: Count | None = None
    tables: Count = 1
    impossible: Annotated[Sequence[str], InFile(tuple[str, ...], ())] = ()
    noise: NormalLaw = "skellam"
    rows_at_most: RowsAtMost = 2**24

    def plain_parameters(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters as a file holds them."""
        plain: dict[str, Any] = {
            "focus": [list(pair) for pair in given["focus"]],
            "impossible": list(given["impossible"]),
        }
        if isinstance(bins := given["bins"], Mapping):
            plain["bins"] = {name: list(held) if isinstance(held, Sequence) else held for name, held in bins.items()}
        return super().plain_parameters(given) | plain

    # --- the joint computation

    def plan(self, roster: Roster) -> Task:
        """The least noise that meets every budget."""
        self._check()
        budgets = parse_budgets(self.epsilon, self.delta, roster.trust)
        layout = Layout.of(roster.schemas, self.bins)
        joint_rules(roster.schemas, self.impossible)
        draft = asking.draft(
            layout, roster, label=self.label, focus=self.focus, law=self.noise, rows_at_most=int(self.rows_at_most)
        )
        return draft.calibrated(budgets)

    def _check(self) -> None:
        """Refuse parameters that cannot be."""
        for name, value, known in (
            ("method", self.method, ("marginals",)),
            ("model", self.model, ("products", "tree")),
            ("noise", self.noise, ("skellam", "discrete-gaussian")),
        ):
            if value not in known:
                raise StudyError(f"{name} must be one of {', '.join(map(repr, known))}, not {value!r}")
        if self.components is not None:
            if self.model == "tree":
                raise StudyError('components are for model = "products"; a tree has none')
            check_whole("components", self.components, 1, MOST_COMPONENTS)
        if self.rows is not None:
            check_whole("rows", self.rows, 1, MOST_ROWS)
        check_whole("tables", self.tables, 1, MOST_TABLES)
        check_whole("rows_at_most", self.rows_at_most, 1, 2**40)

    def details(self, task: Task, statement: Statement) -> Details:
        """How many marginals are asked for, and how exactly."""
        return asking.details(task)

    def owner(self, me: Owner, table: Table, task: Task) -> Published:
        """An owner's program: the marginals are all that is computed together."""
        ordered = table.sorted_by_id()
        return marginals.owner(me, AskedRows(ordered, coded(me.name, ordered.schema, self.bins)), task)

    def coordinator(self, me: Coordinator, task: Task) -> Published:
        """The coordinator's program."""
        return marginals.coordinator(me, task)

    def simulated(self, tables: Mapping[str, Table], task: Task, stream: Stream) -> Published:
        """What the protocol would publish about these tables, whose rows are the same people in the same order."""
        layout = Layout.of({party: tables[party].schema for party in task.owners}, self.bins)
        return marginals.simulate({party: layout.codes(party, tables[party]) for party in task.owners}, task, stream)

    # --- what was learned

    def finish(self, result: Published) -> None:
        """Fit the model to the release: no data and no budget."""
        layout, release = Layout.of(self.schemas_, self.parameters_["bins"]), Release.of(result)
        how = fit_tree if self.model == "tree" else partial(fit, components=int(self.components or COMPONENTS))
        self._become(layout, release, how(layout.sizes, release.count, release.parts))

    def _become(self, layout: Layout, release: Release, fitted: Products | Tree) -> None:
        rules = joint_rules(self.schemas_, self.parameters_["impossible"])
        self.population_ = Population(layout, release, fitted, rules)
        self.feature_names_in_ = list(layout.names)
        self.count_ = release.count

    def learned(self) -> dict[str, Any]:
        """What was asked for; all numbers are among the arrays."""
        layout = self.population_.layout
        return {"asked": self.population_.release.asked, "names": list(layout.names), "sizes": list(layout.sizes)}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The release and the fitted model."""
        fitted = {f"model_{name}": each for name, each in self.population_.fitted.arrays().items()}
        return self.population_.release.arrays() | fitted

    def restore(self, learned: dict[str, Any]) -> None:
        """Set the learned attributes from plain values and arrays."""
        layout, arrays = Layout.of(self.schemas_, self.parameters_["bins"]), learned["arrays"]
        if learned["names"] != list(layout.names) or learned["sizes"] != list(layout.sizes):
            raise ValueError("columns and codes do not belong together")
        own = {name.removeprefix("model_"): each for name, each in arrays.items() if name.startswith("model_")}
        fitted = (Tree if self.model == "tree" else Products).from_arrays(own)
        if fitted.sizes != layout.sizes:
            raise ValueError("model and columns do not belong together")
        self._become(layout, Release.restored(learned["asked"], arrays, layout.sizes), fitted)

    # --- made-up people, and what is known about the real ones

    def sample(self, n: int | None = None, *, seed: int = 0) -> Any:
        """An Arrow table of ``n`` made-up people; by default as many as ``rows`` says, or as there are about.

        The same seed gives the same people: they are drawn by public randomness, from what was published alone.
        """
        self._check_fitted()
        rows = self.usual_rows if n is None else n
        check_whole("n", rows, 1, MOST_ROWS)
        check_whole("seed", seed, 0, 2**63)
        return self.population_.drawn(int(rows), int(seed)).table

    @property
    def usual_rows(self) -> int:
        """How many people a table has where nobody says how many: about as many as there are."""
        asked = self.parameters_["rows"]
        return min(MOST_ROWS, max(1, round(self.count_))) if asked is None else int(asked)

    def marginal(self, *names: str) -> Marginal:
        """How many people have each combination of values of these columns, with the noise in each number."""
        self._check_fitted()
        return self.population_.marginal(names)

    def log_likelihood(self, people: Federation | Mapping[str, Any]) -> NDArray[np.float64]:
        """The logarithm of the chance of each person's codes, for people whose columns lie in one place."""
        self._check_fitted()
        given = people.tables() if isinstance(people, Federation) else people
        if not isinstance(given, Mapping):
            raise DataError("log_likelihood takes a Federation, or a mapping from each party to its table")
        if missing := [party for party in self.schemas_ if party not in given]:
            raise DataError(f"no table of {', '.join(missing)}; log_likelihood needs one of each party")
        tables = {party: table_of(given[party], schema) for party, schema in self.schemas_.items()}
        if len({table.rows for table in tables.values()}) > 1:
            raise DataError("the tables have different numbers of rows; log_likelihood needs the same people in each")
        return self.population_.log_likelihood(tables)

    # --- for people

    @property
    def in_short(self) -> str:
        """What was learned, in one line."""
        return f"{self.usual_rows:,} made-up people with {len(self.feature_names_in_)} columns, from one noisy release"

    def summary(self) -> list[str]:
        """What was released, and how well the model fits it."""
        self._check_fitted()
        return card.summary(self.population_, self.usual_rows)

    def published(self) -> dict[str, bytes]:
        """The table as Parquet and CSV, its data dictionary, and the card that says what it is good for."""
        drawn = [self.population_.drawn(self.usual_rows, 0)]
        about = card.About(self.population_, self.schemas_, self.parameters_, self.privacy_)
        return card.files(about, drawn)
