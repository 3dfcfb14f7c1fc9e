"""Polynomials as text: ``bank.income * shop.spend - 3 * clinic.bmi^2 + 1/2``.

Numbers are read exactly (``0.1`` is one tenth). A name is ``party.column`` with an encoded column; names with other
characters than letters, digits, ``_``, ``.`` and ``=`` stand in quotes: ``'shop.city=The Hague'``. Nothing is ever
evaluated as code, and the size of an expression is bounded.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping
from fractions import Fraction
from typing import NamedTuple

from colonnade.errors import StudyError
from colonnade.tables.cell_parsing import suggest_full_name

Monomial = tuple[tuple[str, int], ...]
"""Names and their powers, in the order of the names; the empty one is the constant 1."""
Terms = dict[Monomial, Fraction]
"""A polynomial: its monomials and their coefficients, none of them zero."""

MOST_DEGREE = 8
MOST_TERMS = 4000
_MOST_TEXT = 100_000
_MOST_WORK = 400_000
_MOST_BITS = 512
_MOST_NESTED = 50
_LONGEST_NUMBER = 40
_LARGEST_EXPONENT = 60

_TOKEN = re.compile(
    r"""\s*(?:
    (?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)
  | (?P<name>[^\W\d][\w.=]*)
  | '(?P<quoted>[^']*)'
  | "(?P<doubled>[^"]*)"
  | (?P<sign>\*\*|[-+*/^()])
    )""",
    re.VERBOSE,
)


class _Token(NamedTuple):
    kind: str
    text: str
    start: int
    end: int


def parse(text: str, names: Collection[str]) -> Terms:
    """The polynomial of an expression; an error shows the place, and for an unknown name a similar one."""
    if not isinstance(text, str):
        raise StudyError(f"an expression is a text such as 'bank.age * shop.visits', not {type(text).__name__} [ST507]")
    if len(text) > _MOST_TEXT:
        raise StudyError(f"an expression of {len(text)} characters is too long; the limit is {_MOST_TEXT} [ST508]")
    return _Parser(text, names).polynomial()


def from_coefficients(given: Mapping[str, object], names: Collection[str]) -> Terms:
    """The polynomial given as monomials and coefficients, ``{"bank.age^2": 1, "bank.age": "1/3"}``."""
    total: Terms = {}
    for key, value in given.items():
        number = isinstance(value, int | float | str | Fraction) and not isinstance(value, bool)
        if not number or (isinstance(value, float) and not math.isfinite(value)):
            raise StudyError(f"the coefficient of {key!r} must be a finite number such as 2, 0.5 or '1/3' [ST509]")
        factor = parse(str(value), ())  # a float as it is written: 0.1 is one tenth
        total = add_terms(total, multiply_terms(parse(key, names), factor))
    return total


def add_terms(left: Terms, right: Terms, sign: int = 1) -> Terms:
    """The sum, or with ``sign=-1`` the difference."""
    total = dict(left)
    for monomial, coefficient in right.items():
        total[monomial] = total.get(monomial, Fraction(0)) + sign * coefficient
    return {monomial: coefficient for monomial, coefficient in total.items() if coefficient}


def multiply_terms(left: Terms, right: Terms) -> Terms:
    """The product."""
    total: Terms = {}
    for one, first in left.items():
        for other, second in right.items():
            monomial = _join_texts(one, other)
            total[monomial] = total.get(monomial, Fraction(0)) + first * second
    return {monomial: coefficient for monomial, coefficient in total.items() if coefficient}


def degree(terms: Iterable[Monomial]) -> int:
    """The largest degree of a monomial; 0 where there is none."""
    return max((sum(power for _, power in monomial) for monomial in terms), default=0)


def format_terms(terms: Terms) -> str:
    """A text that :func:`parse` reads back as the same polynomial."""
    parts = []
    for monomial, coefficient in terms.items():
        factors = [_column_text(name) + (f"^{power}" if power > 1 else "") for name, power in monomial]
        if abs(coefficient) != 1 or not factors:
            factors.insert(0, str(abs(coefficient)))
        parts.append((" - " if coefficient < 0 else " + ") + " * ".join(factors))
    text = "".join(parts) or " + 0"
    return text[3:] if text.startswith(" + ") else "-" + text[3:]


def _column_text(name: str) -> str:
    if re.fullmatch(r"[^\W\d][\w.=]*", name):
        return name
    return f'"{name}"' if "'" in name else f"'{name}'"


def _join_texts(one: Monomial, other: Monomial) -> Monomial:
    powers = dict(one)
    for name, power in other:
        powers[name] = powers.get(name, 0) + power
    return tuple(sorted(powers.items()))


class _Parser:
    """Recursive descent: a sum of products of signed powers of numbers, names and parentheses."""

    def __init__(self, text: str, names: Collection[str]) -> None:
        self.text, self.names = text, names
        self.tokens = self._tokens()
        self.at = 0
        self.nested = 0

    def polynomial(self) -> Terms:
        """The polynomial of the whole text."""
        terms = self._sum()
        if self._next.kind != "end":
            raise self._wrong(self._next, "an operator was expected here [ST510]")
        return terms

    def _tokens(self) -> list[_Token]:
        found, at = [], 0
        end = len(self.text.rstrip())
        while at < end:
            match = _TOKEN.match(self.text, at)
            if match is None or match.lastgroup is None:
                start = at + len(self.text[at:]) - len(self.text[at:].lstrip())
                raise self._wrong(
                    _Token("", "", start, start + 1), "this character has no meaning in an expression [ST511]"
                )
            kind = {"quoted": "name", "doubled": "name"}.get(match.lastgroup, match.lastgroup)
            inside = match[match.lastgroup]
            found.append(_Token(kind, inside, match.start(match.lastgroup), match.end()))
            at = match.end()
        return [*found, _Token("end", "", end, end)]

    @property
    def _next(self) -> _Token:
        return self.tokens[self.at]

    def _take(self, *signs: str) -> _Token | None:
        token = self._next
        if token.kind == "sign" and token.text in signs:
            self.at += 1
            return token
        return None

    def _sum(self) -> Terms:
        total = dict(self._product())
        while token := self._take("+", "-"):
            part = self._product()
            for monomial, coefficient in part.items():
                total[monomial] = total.get(monomial, 0) + (coefficient if token.text == "+" else -coefficient)
            self._check(token, len(total), (total[monomial] for monomial in part))
        return {monomial: coefficient for monomial, coefficient in total.items() if coefficient}

    def _product(self) -> Terms:
        total = self._signed()
        while token := self._take("*", "/"):
            part = self._signed()
            if token.text == "/":
                part = self._inverse(token, part)
            total = self._times(token, total, part)
        return total

    def _signed(self) -> Terms:
        sign = 1
        while token := self._take("+", "-"):
            sign = -sign if token.text == "-" else sign
        return add_terms({}, self._power(), sign)

    def _power(self) -> Terms:
        base = self._atom()
        token = self._take("^", "**")
        if token is None:
            return base
        exponent = self._next
        if exponent.kind != "number" or not re.fullmatch(r"\d{1,2}", exponent.text):
            raise self._wrong(exponent, "a power is a whole number such as 2 [ST512]")
        self.at += 1
        total: Terms = {(): Fraction(1)}
        for _ in range(int(exponent.text)):
            total = self._times(exponent, total, base)
        if (again := self._next).text in ("^", "**") and again.kind == "sign":
            raise self._wrong(again, "a power of a power needs parentheses [ST513]")
        return total

    def _atom(self) -> Terms:
        token = self._next
        self.at += 1
        if token.kind == "number":
            return self._number(token)
        if token.kind == "name":
            if token.text not in self.names:
                known = suggest_full_name(token.text, self.names) or "; names are party.column, with encoded columns"
                raise self._wrong(token, f"there is no column {token.text!r}{known} [ST514]")
            return {((token.text, 1),): Fraction(1)}
        if token.kind == "sign" and token.text == "(":
            return self._inside(token)
        raise self._wrong(token, "a number, a name or a parenthesis was expected here [ST515]")

    def _inside(self, opening: _Token) -> Terms:
        self.nested += 1
        if self.nested > _MOST_NESTED:
            raise self._wrong(opening, f"parentheses are nested more than {_MOST_NESTED} deep [ST516]")
        terms = self._sum()
        if not self._take(")"):
            raise self._wrong(self._next, "a parenthesis is not closed [ST517]")
        self.nested -= 1
        return terms

    def _number(self, token: _Token) -> Terms:
        mantissa, _, exponent = token.text.lower().partition("e")
        if len(token.text) > _LONGEST_NUMBER or abs(int(exponent or 0)) > _LARGEST_EXPONENT:
            raise self._wrong(token, "this number is too long, too large or too small [ST518]")
        value = Fraction(mantissa) * Fraction(10) ** int(exponent or 0)
        return {(): value} if value else {}

    def _inverse(self, token: _Token, terms: Terms) -> Terms:
        if set(terms) != {()}:
            raise self._wrong(token, "only a number other than 0 can stand below a division [ST519]")
        return {(): 1 / terms[()]}

    def _times(self, token: _Token, left: Terms, right: Terms) -> Terms:
        if degree(left) + degree(right) > MOST_DEGREE:
            raise self._wrong(token, f"the degree is above {MOST_DEGREE} here [ST520]")
        if len(left) * len(right) > _MOST_WORK:
            raise self._wrong(token, "this product has too many terms [ST521]")
        product = multiply_terms(left, right)
        self._check(token, len(product), product.values())
        return product

    def _check(self, token: _Token, terms: int, coefficients: Iterable[Fraction]) -> None:
        if terms > MOST_TERMS:
            raise self._wrong(token, f"there are more than {MOST_TERMS} terms here [ST522]")
        if any(_bits(coefficient) > _MOST_BITS for coefficient in coefficients):
            raise self._wrong(token, "a coefficient has too many digits here [ST523]")

    def _wrong(self, token: _Token, what: str) -> StudyError:
        shown = self.text[max(0, token.start - 60) : token.end]
        lead = "..." if token.start > 60 else ""
        return StudyError(f"character {token.start + 1} of the expression ({lead}{shown} <-- here): {what} [ST524]")


def _bits(value: Fraction) -> int:
    return max(abs(value.numerator), value.denominator).bit_length()
