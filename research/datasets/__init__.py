"""Real public data sets, split by columns between organisations: downloading, checking, loading."""

from research.datasets.fetch import FETCHED, fetch_dataset
from research.datasets.named import dataset_names, load_dataset
from research.datasets.pictures import load_halves

__all__ = ["FETCHED", "dataset_names", "fetch_dataset", "load_dataset", "load_halves"]
