"""What a data scientist calls."""

from colonnade.models.base import MODELS, Estimator
from colonnade.models.federation import Federation, Party, Roster
from colonnade.models.pca import PCA

__all__ = ["MODELS", "PCA", "Estimator", "Federation", "Party", "Roster"]
