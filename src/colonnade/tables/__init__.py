"""How a party's columns become a bounded matrix, and how encoded numbers become columns again."""

from typing import TYPE_CHECKING

from colonnade.lazy import lazy_exports

# Not with the others below: its name is also the name of its module, which importing would put in its place.
from colonnade.tables.encoding import decode as decode

if TYPE_CHECKING:
    from colonnade.tables.coding import (
        CodedRows as CodedRows,
        Coding as Coding,
        ColumnCoding as ColumnCoding,
        build_coding as build_coding,
        data_dictionary as data_dictionary,
        decode_codes as decode_codes,
        forbidden_codes as forbidden_codes,
        joint_constraints as joint_constraints,
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
    from colonnade.tables.datasets import Dataset as Dataset, population as population
    from colonnade.tables.dates import Calendar as Calendar, Days as Days, date as date
    from colonnade.tables.encoding import EncodingReport as EncodingReport, encode_columns as encode_columns
    from colonnade.tables.keys import (
        Key as Key,
        KeyColumn as KeyColumn,
        KeyPlan as KeyPlan,
        TableKeys as TableKeys,
        key_columns as key_columns,
    )
    from colonnade.tables.profiling import draft_schema as draft_schema
    from colonnade.tables.schema import Constraint as Constraint, Schema as Schema, find_violations as find_violations
    from colonnade.tables.slots import RowSlots as RowSlots, SlottedRows as SlottedRows
    from colonnade.tables.sources.databases import Query as Query
    from colonnade.tables.table import Table as Table, read_table as read_table

__all__, __getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "coding": "CodedRows Coding ColumnCoding build_coding data_dictionary decode_codes forbidden_codes "
        "joint_constraints joint_names",
        "columns": "Category Column Flag Number category flag number",
        "datasets": "Dataset population",
        "dates": "Calendar Days date",
        "encoding": "EncodingReport encode_columns",
        "keys": "Key KeyColumn KeyPlan TableKeys key_columns",
        "profiling": "draft_schema",
        "schema": "Constraint Schema find_violations",
        "slots": "RowSlots SlottedRows",
        "sources.databases": "Query",
        "table": "read_table Table",
    },
)
