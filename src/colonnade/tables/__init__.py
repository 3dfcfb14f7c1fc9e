"""How a party's columns become a bounded matrix, and how encoded numbers become columns again."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

# Not with the others below: its name is also the name of its module, which importing would put in its place.
from colonnade.tables.decode import decode

if TYPE_CHECKING:
    from colonnade.tables.columns import Category, Column, Flag, Number, category, flag, number
    from colonnade.tables.dataset import Dataset
    from colonnade.tables.decode import decode_number
    from colonnade.tables.draft import draft_schema
    from colonnade.tables.encode import Report, encode_columns
    from colonnade.tables.keys import Key, KeyColumn, KeyPlan, Keys, key_columns
    from colonnade.tables.people import population, write_population
    from colonnade.tables.places import Places, Spread
    from colonnade.tables.reading import read_table
    from colonnade.tables.schema import Schema
    from colonnade.tables.table import Table

__all__ = [
    "Category",
    "Column",
    "Dataset",
    "Flag",
    "Key",
    "KeyColumn",
    "KeyPlan",
    "Keys",
    "Number",
    "Places",
    "Report",
    "Schema",
    "Spread",
    "Table",
    "category",
    "decode",
    "decode_number",
    "draft_schema",
    "encode_columns",
    "flag",
    "key_columns",
    "number",
    "population",
    "read_table",
    "write_population",
]

_HOMES = {
    "columns": "Category Column Flag Number category flag number",
    "dataset": "Dataset",
    "decode": "decode_number",
    "draft": "draft_schema",
    "encode": "Report encode_columns",
    "keys": "Key KeyColumn KeyPlan Keys key_columns",
    "people": "population write_population",
    "places": "Places Spread",
    "reading": "read_table",
    "schema": "Schema",
    "table": "Table",
}


def __getattr__(name: str) -> Any:
    """Import an exported name when it is first used."""
    for home, names in _HOMES.items():
        if name in names.split():
            found = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
