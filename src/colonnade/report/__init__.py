"""What a person sees of a finished run."""

from colonnade.report.page import render, write_report

__all__ = ["render", "write_report"]
