"""The section of a report about predictions, which shows none of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from colonnade.report.sections import ReportSection, counts

if TYPE_CHECKING:
    from colonnade.models.score_result import ScoreQuestion

SECTION: ReportSection[ScoreQuestion] = ReportSection(
    title=lambda model, columns: f"predictions for {model.recipient}", result=counts, columns=lambda model: 0
)
