"""Numbers of other people's papers and programs, which the privacy code must reproduce."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "privacy" / "vectors.json").read_text())
