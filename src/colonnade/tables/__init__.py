"""How a party's columns become a bounded matrix."""

from colonnade.tables.columns import Category, Column, Flag, Number, category, flag, number
from colonnade.tables.dataset import Dataset
from colonnade.tables.datasets import dataset_names, fetch_dataset, load_dataset
from colonnade.tables.draft import draft_schema
from colonnade.tables.encode import Report, decode_number, encode_columns
from colonnade.tables.people import population, write_population
from colonnade.tables.schema import Schema
from colonnade.tables.table import Table, read_table

__all__ = [
    "Category",
    "Column",
    "Dataset",
    "Flag",
    "Number",
    "Report",
    "Schema",
    "Table",
    "category",
    "dataset_names",
    "decode_number",
    "draft_schema",
    "encode_columns",
    "fetch_dataset",
    "flag",
    "load_dataset",
    "number",
    "population",
    "read_table",
    "write_population",
]
