"""Fixtures that tests of kinds share with those of models, protocols and studies."""

from tests.models.conftest import _aligned as _aligned, _unaligned as _unaligned
from tests.protocols.conftest import exact as exact, nearest as nearest
from tests.study.conftest import trial as trial
