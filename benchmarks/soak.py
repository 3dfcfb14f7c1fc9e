"""Studies back to back through the same hub and agents: do memory, descriptors, threads and temporary files stay flat?

Every study is a proposal of its own, which agents approve by policy. After each one the processes of the hub and of the
agents are measured. A line is fitted to each figure over the second half of the studies, when everything has been used
once. It counts as flat where its slope is at most two standard errors above zero, or too small to matter.
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import sys
import tempfile
import time
from datetime import UTC, datetime
from html import escape
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.support.standing import HUB, PARTIES, Standing, standing

RESULTS = Path(__file__).parent / "results"
NAMES = (HUB, *PARTIES)
COLOURS = dict(zip(NAMES, ("#8a3b12", "#1f5aa8", "#2d7d46", "#7a4fa3"), strict=True))
FIGURES = {"memory": "resident memory, MB", "descriptors": "open descriptors", "threads": "threads",
           "temporary": "files in the folder for temporary ones"}  # fmt: skip
MATTERS = {"memory": 0.02, "descriptors": 0.01, "threads": 0.01, "temporary": 0.01}
"""What a study may add: 20 KB of memory, or one of the others in a hundred studies."""
Sample = dict[str, dict[str, float]]


def sample(federation: Standing, temporary: Path) -> Sample:
    """What every process holds now, without its children; the folder for temporary files is common to all."""
    found: Sample = {}
    for name, process in federation.running.items():
        status = dict(line.split(":", 1) for line in Path(f"/proc/{process.pid}/status").read_text().splitlines())
        found[name] = {
            "memory": int(status["VmRSS"].split()[0]) / 1000,
            "descriptors": len(os.listdir(f"/proc/{process.pid}/fd")),
            "threads": int(status["Threads"]),
            "temporary": sum(1 for _ in temporary.rglob("*")),
        }
    return found


def slope(values: list[float]) -> tuple[float, float]:
    """The slope of a line through the second half of the values, and its standard error; both for one study."""
    half = np.array(values[len(values) // 2 :])
    x = np.arange(len(half)) - (len(half) - 1) / 2
    found = float(x @ half / (x @ x))
    left = half - half.mean() - found * x
    return found, float(np.sqrt(left @ left / max(1, len(half) - 2) / (x @ x)))


def flat(figure: str, found: tuple[float, float]) -> bool:
    return found[0] <= max(2 * found[1], MATTERS[figure])


def play(federation: Standing, studies: int, minutes: float, temporary: Path) -> tuple[list[Sample], list[float]]:
    """So many studies, one after the other, or fewer: what is held after each, and how long each took."""
    samples: list[Sample] = []
    seconds: list[float] = []
    until = time.monotonic() + 60 * minutes
    for number in range(studies):
        begun = time.monotonic()
        if begun > until and number > 3:
            break
        proposed = federation.propose(federation.study_named(f"small-{number}"))
        ended = federation.wait_all(proposed, "done", "failed", "refused", "expired")
        assert {entry.state for entry in ended.values()} == {"done"}, ended
        seconds.append(time.monotonic() - begun)
        samples.append(sample(federation, temporary))
        print(f"study {number + 1} of {studies}: {seconds[-1]:.1f} s", file=sys.stderr)
    return samples, seconds


def picture(samples: list[Sample]) -> str:
    """A panel for each figure, with a line for each process."""
    wide, tall, left, gap = 720, 150, 60, 34
    body = []
    for place, (figure, title) in enumerate(FIGURES.items()):
        top = place * (tall + gap) + 24
        curves = {name: [one[name][figure] for one in samples] for name in NAMES}
        most = max(1.0, *(max(curve) for curve in curves.values())) * 1.05
        body.append(f'<text x="{left}" y="{top - 8}" class="title">{escape(title)}</text>')
        for part in (0.0, 0.5, 1.0):
            y = top + tall * (1 - part)
            body.append(f'<line x1="{left}" x2="{wide - 90}" y1="{y}" y2="{y}" class="grid"/>')
            body.append(f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{most * part:.0f}</text>')
        for row, (name, curve) in enumerate(curves.items()):
            step = (wide - 90 - left) / max(1, len(curve) - 1)
            spots = " ".join(f"{left + k * step:.1f},{top + tall * (1 - y / most):.1f}" for k, y in enumerate(curve))
            body.append(f'<polyline points="{spots}" stroke="{COLOURS[name]}"/>')
            body.append(f'<text x="{wide - 84}" y="{top + 14 + 16 * row}" fill="{COLOURS[name]}">{name}</text>')
    high = len(FIGURES) * (tall + gap) + 20
    body.append(f'<text x="{left}" y="{high - 8}">studies, 1 to {len(samples)}</text>')
    style = "text{font:12px sans-serif}.title{font-weight:bold}.grid{stroke:#ccc}polyline{fill:none;stroke-width:1.5}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" role="img">'
        "<title>What the processes of a federation hold, study after study</title>"
        f'<style>{style}</style><rect width="{wide}" height="{high}" fill="#fff"/>{"".join(body)}</svg>\n'
    )


def page(samples: list[Sample], seconds: list[float], slopes: dict[tuple[str, str], tuple[float, float]]) -> str:
    """The page with the figures."""
    rows = []
    for (figure, name), found in slopes.items():
        curve = [one[name][figure] for one in samples]
        word = "flat" if flat(figure, found) else "GROWS"
        rows.append(
            f"| {FIGURES[figure]} | {name} | {curve[0]:.0f} | {curve[-1]:.0f} | {found[0]:+.4f} ± {found[1]:.4f} "
            f"| {word} |"
        )
    return "\n".join(
        [
            "# A long day of a standing federation",
            "",
            f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC; {os.cpu_count()} cores, Python {platform.python_version()}. "
            f"Made by `python benchmarks/soak.py --studies {len(samples)} --write`.",
            f"{len(samples)} studies back to back through the same hub and agents, "
            f"{float(np.median(seconds)):.1f} s each at the median (proposed, checked, approved by policy, run, told). "
            "Slopes are of a line through the second half, for one study, with their standard errors. Flat is at most "
            "two of these above zero, or below 20 KB of memory or a hundredth of anything else for a study.",
            "",
            "| what | whose | after the first | after the last | slope | |",
            "|---|---|---|---|---|---|",
            *rows,
            "",
            "![what the processes hold, study after study](soak.svg)",
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=300)
    parser.add_argument("--minutes", type=float, default=24 * 60, help="begin no study after so many")
    parser.add_argument("--write", action="store_true", help="write soak.md, soak.csv and soak.svg")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        temporary = Path(folder) / "tmp"
        temporary.mkdir()
        os.environ["TMPDIR"] = str(temporary)
        how = {"small": True, "approval": "auto-within-budget", "cap": 1_000_000.0}
        with standing(Path(folder) / "federation", **how) as federation:
            samples, seconds = play(federation, given.studies, given.minutes, temporary)
    slopes = {
        (figure, name): slope([one[name][figure] for one in samples]) for figure in FIGURES for name in NAMES
    }  # fmt: skip
    text = page(samples, seconds, slopes)
    if given.write:
        (RESULTS / "soak.md").write_text(text, encoding="utf-8")
        (RESULTS / "soak.svg").write_text(picture(samples), encoding="utf-8")
        with open(RESULTS / "soak.csv", "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["study", "seconds", *(f"{name} {figure}" for name in NAMES for figure in FIGURES)])
            for number, (one, took) in enumerate(zip(samples, seconds, strict=True), start=1):
                held = [round(one[name][figure], 3) for name in NAMES for figure in FIGURES]
                writer.writerow([number, round(took, 3), *held])
    print(text)
    sys.exit(not all(flat(figure, found) for (figure, _), found in slopes.items()))


if __name__ == "__main__":
    main()
