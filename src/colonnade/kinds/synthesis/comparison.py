"""A synthetic table beside the real one, as ``colonnade quality`` asks for it: the figures, and a page of them."""

from colonnade.kinds.synthesis.quality import evaluate_synthetic as evaluate
from colonnade.kinds.synthesis.report_quality import write_quality as write

__all__ = ["evaluate", "write"]
