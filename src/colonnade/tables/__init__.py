"""How a party's columns become a bounded matrix, and how encoded numbers become columns again."""

from typing import TYPE_CHECKING

from colonnade.lazy import exports

# Not with the others below: its name is also the name of its module, which importing would put in its place.
from colonnade.tables.decode import decode as decode

if TYPE_CHECKING:
    from colonnade.tables.coding import (
        CodedRows as CodedRows,
        Coding as Coding,
        ColumnCoding as ColumnCoding,
        coding_of as coding_of,
        decode_codes as decode_codes,
        joint_names as joint_names,
    )
    from colonnade.tables.columns import (
        Category as Category,
        Column as Column,
        Flag as Flag,
        Number as Number,
        category as category,
        flag as flag,
        number as number,
    )
    from colonnade.tables.dataset import Dataset as Dataset
    from colonnade.tables.dates import Calendar as Calendar, Days as Days, date as date
    from colonnade.tables.draft import draft_schema as draft_schema
    from colonnade.tables.encode import Report as Report, encode_columns as encode_columns
    from colonnade.tables.impossible import Rule as Rule, violations as violations
    from colonnade.tables.joint import (
        dictionary as dictionary,
        impossible_codes as impossible_codes,
        joint_rules as joint_rules,
    )
    from colonnade.tables.keys import (
        Key as Key,
        KeyColumn as KeyColumn,
        KeyPlan as KeyPlan,
        Keys as Keys,
        key_columns as key_columns,
    )
    from colonnade.tables.people import population as population
    from colonnade.tables.places import Places as Places, Spread as Spread
    from colonnade.tables.reading import read_table as read_table
    from colonnade.tables.schema import Schema as Schema
    from colonnade.tables.sources.query import Query as Query
    from colonnade.tables.table import Table as Table

__all__, __getattr__, __dir__ = exports(
    __name__,
    {
        "coding": "CodedRows Coding ColumnCoding coding_of decode_codes joint_names",
        "columns": "Category Column Flag Number category flag number",
        "dataset": "Dataset",
        "dates": "Calendar Days date",
        "draft": "draft_schema",
        "encode": "Report encode_columns",
        "impossible": "Rule violations",
        "joint": "dictionary impossible_codes joint_rules",
        "keys": "Key KeyColumn KeyPlan Keys key_columns",
        "people": "population",
        "places": "Places Spread",
        "reading": "read_table",
        "schema": "Schema",
        "sources.query": "Query",
        "table": "Table",
    },
)
