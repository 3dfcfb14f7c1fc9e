"""The section of a report about predictions, which shows none of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from colonnade.report.results import counts
from colonnade.report.section import Section

if TYPE_CHECKING:
    from colonnade.models.predicted import Predicted

SECTION: Section[Predicted] = Section(
    title=lambda model, columns: f"predictions for {model.recipient}", result=counts, columns=lambda model: 0
)
