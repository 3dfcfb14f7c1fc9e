"""Sums over all people of polynomials in columns that nobody holds together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from colonnade.drawing.canvas import Picture
from colonnade.errors import CapacityError, StudyError
from colonnade.kinds.polynomial.expressions import Terms, format_terms, from_coefficients, parse
from colonnade.kinds.polynomial.task import NamedColumns, NoisySums, Polynomials, freeze_terms
from colonnade.models.base import Estimator
from colonnade.models.estimates import Estimate
from colonnade.models.federation import Federation
from colonnade.models.pictures import sums_picture
from colonnade.models.planner import InFile, Roster, RowsAtMost, at_least, check_whole, not_shorter_than
from colonnade.models.serialization import read_array, read_count, read_texts
from colonnade.privacy import parse_budgets
from colonnade.privacy.noise.local_mechanisms import RoundingMode
from colonnade.privacy.noise_laws import DEFAULT_LAW, NormalLawName
from colonnade.protocols.rows import Rows
from colonnade.randomness import Stream
from colonnade.tables import Schema, Table

Expression = str | Mapping[str, Any]
"""A text such as ``"bank.age * shop.visits"``, or monomials with their coefficients, ``{"bank.age^2": 0.5}``."""

_LARGEST_GAMMA = 4096
_MOST = 8  # sums in a summary
_ROOM = 2**60  # for sums without noise, when gamma is chosen here


@dataclass(eq=False, repr=False)
class PolynomialSum(Estimator[Polynomials, NoisySums]):
    """Differentially private sums over all people of polynomials in the encoded columns of all parties.

    Args:
        expressions: texts such as ``"bank.age * shop.visits - 3 * clinic.bmi^2"``, or mappings from monomials to
            coefficients. ``"1"`` counts the people.
        epsilon: one number for everyone, or a mapping such as ``{"analyst": 1.0, "party": 2.0}``.
        delta: the delta of all these promises.
        gamma: the scale of the integer grid; by default the largest power of two up to 4096 at which the sums fit.
        rounding: ``"stochastic"``, ``"nearest"``, ``"toward-zero"`` or ``"conditional"``.
        noise: ``"skellam"`` or ``"discrete-gaussian"``.
        rows_at_most: a public limit on the number of rows, from which the arithmetic is sized.
    """

    kind = "polynomial"
    tasks = (Polynomials,)
    saved: ClassVar = {
        "expressions": read_texts,
        "feature_names_in": read_texts,
        "values": read_array,
        "deviations": read_array,
        "gamma": read_count,
    }

    expressions: Annotated[Expression | Sequence[Expression], InFile(Annotated[tuple[str, ...], not_shorter_than(1)])]
    _: KW_ONLY
    epsilon: float | Mapping[str, float]
    delta: float = 1e-5
    gamma: Annotated[int, at_least(2)] | None = None
    rounding: RoundingMode = "stochastic"
    noise: NormalLawName = DEFAULT_LAW
    rows_at_most: RowsAtMost = 2**24

    def __post_init__(self) -> None:
        found = _as_list(self.expressions)
        if not isinstance(self.expressions, str | Mapping | Sequence):  # an iterator, which can be read only once
            self.expressions = found

    def plan(self, roster: Roster) -> Polynomials:
        """The least noise that meets every budget."""
        roster.require_known_members("a sum of polynomials")
        budgets = parse_budgets(self.epsilon, self.delta, roster.trust)
        check_whole("rows_at_most", self.rows_at_most, 1, 2**40)
        polynomials = [_terms(index, given, roster) for index, given in enumerate(_as_list(self.expressions))]
        named = {name for terms in polynomials for monomial in terms for name, _ in monomial}
        draft = Polynomials(
            holdings=tuple(_holding(owner, schema, named) for owner, schema in roster.schemas.items()),
            trust=roster.trust,
            polynomials=tuple(freeze_terms(terms) for terms in polynomials),
            gamma=2,
            rows_at_most=self.rows_at_most,
            noise=len(roster.schemas),
            rounding=self.rounding,
            law=self.noise,
        )
        return _choose_scale(draft, self.gamma).calibrate(budgets)

    def plain_parameters(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters as a file holds them: the expressions as a list."""
        return super().plain_parameters(given) | {"expressions": _as_list(given["expressions"])}

    def summands(self, party: str, table: Table, task: Polynomials) -> Rows:
        """The columns that are named."""
        return _NamedRows(table.sorted_by_id(), _columns(party, task))

    def simulate_result(self, tables: Mapping[str, Table], task: Polynomials, stream: Stream) -> NoisySums:
        """What the protocol would publish about these tables."""
        rows = {owner: _NamedRows(tables[owner], _columns(owner, task)) for owner in task.owners}
        found: NoisySums = task.programs.simulate({owner: one.matrix() for owner, one in rows.items()}, task, stream)
        return found

    def finish(self, result: NoisySums) -> None:
        """The sums in encoded units."""
        texts = zip(_as_list(self.expressions), result.task.polynomials, strict=True)
        self.expressions_ = [given if isinstance(given, str) else format_terms(dict(terms)) for given, terms in texts]
        self.feature_names_in_ = list(result.task.names)
        self.values_ = result.values
        self.deviations_ = result.deviations
        self.gamma_ = result.task.gamma

    def check_restored(self) -> None:
        """Raise an error unless what was read from a file belongs together."""
        if not self.values_.shape == self.deviations_.shape == (len(self.expressions_),):
            raise ValueError("sums and expressions do not belong together [VA032]")

    def estimates(self) -> dict[str, Estimate]:
        """The sums by expression, each a float with the deviation of its noise and an interval for the exact sum."""
        self._check_fitted()
        found = zip(self.expressions_, self.values_.tolist(), self.deviations_.tolist(), strict=True)
        return {text: Estimate(value, deviation) for text, value, deviation in found}

    def picture(self) -> Picture:
        """The sums, with their intervals."""
        return sums_picture(self.estimates())

    @property
    def in_short(self) -> str:
        """What was learned, in one line."""
        return f"{len(self.values_)} sums over all people, of {self.n_features_in_} encoded columns"

    def summary(self) -> list[str]:
        """The first sums, each with the deviation of its noise."""
        self._check_fitted()
        pairs = list(zip(self.expressions_, self.values_, self.deviations_, strict=True))
        lines = [f"  {text}: {value:.6g}, noise of deviation {spread:.3g}" for text, value, spread in pairs[:_MOST]]
        rest = [f"  and {len(pairs) - _MOST} more in model.json"] if len(pairs) > _MOST else []
        return ["sums over all people:", *lines, *rest]


def polynomial_sum(
    people: Federation,
    expressions: Expression | Sequence[Expression],
    *,
    epsilon: float | Mapping[str, float],
    delta: float = 1e-5,
    gamma: int | None = None,
    rounding: RoundingMode = "stochastic",
    noise: NormalLawName = DEFAULT_LAW,
    rows_at_most: int = 2**24,
) -> PolynomialSum:
    """The sums of these expressions over all people of a federation, as a fitted :class:`PolynomialSum`."""
    model = PolynomialSum(
        expressions,
        epsilon=epsilon,
        delta=delta,
        gamma=gamma,
        rounding=rounding,
        noise=noise,
        rows_at_most=rows_at_most,
    )
    return model.fit(people)


def _as_list(given: Expression | Sequence[Expression]) -> list[Expression]:
    """The expressions as a list; a single expression may be given without one."""
    if isinstance(given, str | Mapping):
        return [given]
    if not isinstance(given, Iterable):
        raise StudyError(
            f'expressions must be a list of texts such as ["bank.age^2"], not {type(given).__name__} [ST157]'
        )
    if not (found := list(given)):
        raise StudyError(
            'expressions must be a list of texts such as ["bank.age^2"], with at least one of them [ST158]'
        )
    return found


def _terms(index: int, given: Expression, roster: Roster) -> Terms:
    names = {f"{owner}.{column}" for owner, schema in roster.schemas.items() for column in schema.encoded_names}
    try:
        terms = from_coefficients(given, names) if isinstance(given, Mapping) else parse(given, names)
    except StudyError as error:
        raise StudyError(f"expression {index + 1}: {error} [ST159]") from None
    if not terms:
        raise StudyError(f"expression {index + 1} is zero whatever the data; leave it out [ST160]")
    return terms


class _NamedRows:
    """Some encoded columns of a table; no other column is read."""

    def __init__(self, table: Table, columns: Sequence[str]) -> None:
        chosen = _sources(table.schema, set(columns))
        self._table = table.select(chosen) if chosen else None
        self._width = len(columns)
        self._rows = table.rows
        self.ids = table.ids
        self.places = table.places
        known = self._table.schema.encoded_names if self._table is not None else ()
        self._places = [known.index(column) for column in columns]

    def blocks(self, rows: int) -> Iterator[NDArray[np.float64]]:
        """The encoded rows of these columns, some at a time."""
        if self._table is not None:
            for block in self._table.blocks(rows):
                yield block[:, self._places]

    def matrix(self) -> NDArray[np.float64]:
        """All rows at once."""
        return (
            np.vstack([np.zeros((0, self._width)), *self.blocks(8192)])
            if self._table is not None
            else np.zeros((self._rows, 0))
        )


def _columns(owner: str, task: Polynomials) -> tuple[str, ...]:
    return task.holdings[task.owners.index(owner)].columns


def _sources(schema: Schema, encoded: set[str]) -> list[str]:
    """The table columns that these encoded columns come from."""
    return [name for name, place in schema.encoded_slices.items() if encoded & set(schema.encoded_names[place])]


def _holding(owner: str, schema: Schema, named: set[str]) -> NamedColumns:
    """The columns of one owner that the expressions name, in the schema's order, with their bounds."""
    columns = tuple(column for column in schema.encoded_names if f"{owner}.{column}" in named)
    sources = _sources(schema, set(columns))
    if not sources:
        return NamedColumns(owner, (), 0.0, 0, ())
    chosen = schema.select(sources)
    signed = {
        column
        for name in sources
        if (quantity := chosen.columns[name].quantity) and quantity.signed
        for column in chosen.encoded_names[chosen.encoded_slices[name]][:1]  # the mark of a missing number is 0 or 1
    }
    return NamedColumns(owner, columns, chosen.clip, len(sources), tuple(column not in signed for column in columns))


def _choose_scale(draft: Polynomials, gamma: int | None) -> Polynomials:
    """The task with the given gamma, or with the largest power of two at which the sums fit."""
    if gamma is not None:
        check_whole("gamma", gamma, 2, 2**26)
        return replace(draft, gamma=int(gamma))
    scale = _LARGEST_GAMMA
    while scale >= 2:
        if (task := replace(draft, gamma=scale)).largest <= _ROOM:
            return task
        scale //= 2
    raise CapacityError(
        f"sums of degree {draft.program.degree} over up to {draft.rows_at_most} rows do not fit 60 bits: lower "
        "rows_at_most, the degree or the coefficients [CA001]"
    )
