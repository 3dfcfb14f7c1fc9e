"""The papers' tables and figures again, beside what they print and what is measured here."""

from __future__ import annotations
