"""How a party's columns become a bounded matrix."""

from colonnade.tables.columns import Category, Column, Flag, Number, category, flag, number
from colonnade.tables.dataset import Dataset
from colonnade.tables.datasets import dataset_names, fetch_dataset, load_dataset
from colonnade.tables.decode import decode, decode_number
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
    "dataset_names",
    "decode",
    "decode_number",
    "draft_schema",
    "encode_columns",
    "fetch_dataset",
    "flag",
    "key_columns",
    "load_dataset",
    "number",
    "population",
    "read_table",
    "write_population",
]
