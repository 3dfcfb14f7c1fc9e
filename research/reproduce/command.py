"""``python -m research reproduce``: the papers' tables and figures again, beside what they print."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from colonnade.cli.output import Json, emit, progress_bar, say, speak_json
from colonnade.drawing.canvas import Picture
from colonnade.errors import StorageError
from research.reproduce.charts import picture
from research.reproduce.options import Options
from research.reproduce.page import Cells, write_reproduction
from research.reproduce.results import Row, markdown, write_csv


class Paper(StrEnum):
    """What can be reproduced."""

    SQM = "sqm"
    FUNCTIONAL = "functional"
    HDP = "hdp"
    DPVI = "dpvi"
    AFE = "afe"
    SYNTHESIS = "synthesis"


_Make = Callable[[Options], Iterator[Row]]
_TITLES = {
    Paper.SQM: "The Skellam quantisation mechanism, again",
    Paper.FUNCTIONAL: "The functional mechanism, again",
    Paper.HDP: "Learning over noised messages (HDP-VFL), again",
    Paper.DPVI: "Mixtures by variational inference (DPVI), again",
    Paper.AFE: "Adaptive feature embeddings (VFL-AFE), again",
    Paper.SYNTHESIS: "Synthetic tables, beside peers that need all data in one place",
}
_RUNS = {Paper.SQM: 20, Paper.FUNCTIONAL: 20, Paper.HDP: 10, Paper.SYNTHESIS: 5, Paper.DPVI: 10, Paper.AFE: 5}
_QUICK_RUNS = 2


class _Reproduction(NamedTuple):
    """What to say about a paper, how to measure it, and what is asked of the numbers."""

    notes: Sequence[str]
    make: _Make
    required: Callable[[Sequence[Row]], list[Cells]] = lambda rows: []
    pictures: Callable[[], Picture] | None = None


def reproduce(
    paper: Annotated[Paper, typer.Argument(help="Whose tables and figures.")],
    runs: Annotated[
        int | None,
        typer.Option(
            "--runs", min=1, max=1000, help="Runs of each point.  [default: 20; hdp, dpvi: 10; afe, synthesis: 5]"
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Two runs on a little of the data: does it work?")] = False,
    full: Annotated[bool, typer.Option("--full", help="The paper's size also where it takes long.")] = False,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Splits, made-up data and noise.")] = 2024,
    data: Annotated[
        Path | None, typer.Option("--data", help="The folder of the data sets.  [default: COLONNADE_DATA]")
    ] = None,
    peers: Annotated[
        Path | None, typer.Option("--peers", help="A CSV of lines measured elsewhere, such as diffprivlib's.")
    ] = None,
    workers: Annotated[
        int, typer.Option("--workers", min=1, max=256, help="Processes side by side, where a paper's parts allow it.")
    ] = 1,
    out: Annotated[Path, typer.Option("--out", help="Where to leave the results.")] = Path("runs/reproduce"),
    json: Json = False,
) -> None:
    """Reproduce a paper's tables and figures, beside its numbers."""
    speak_json(json)
    _prepare(out)
    title, chosen = _TITLES[paper], _paper(paper)
    often = runs or _RUNS[paper]
    with progress_bar(not json) as progress:
        options = Options(
            min(often, _QUICK_RUNS) if quick else often, quick, full, seed, data, peers, progress, workers
        )
        rows = list(chosen.make(options))
    required = chosen.required(rows)
    command = _command(paper, options)
    name = f"reproduce-{paper}"
    files = {
        "csv": write_csv(out / f"{name}.csv", rows),
        "markdown": _write_markdown(out / f"{name}.md", title, chosen.notes, command, rows, required),
        "html": write_reproduction(out / f"{name}.html", title, chosen.notes, rows, required),
        "svg": picture(rows).save(out / f"{name}.svg"),
    }
    if chosen.pictures is not None:
        files["pictures"] = chosen.pictures().save(out / f"{name}-pictures.svg")
    written = {kind: str(path) for kind, path in files.items()}
    if json:
        asked = [dict(zip(("what", "found", "kept"), cells, strict=True)) for cells in required]
        found = {"required": asked, "rows": [row.to_dict() for row in rows]}
        emit({"paper": paper, "command": command, **written, **found})
        return
    say(markdown(rows))
    for cells in required:
        say("   ".join(cells))
    say(f"{len(rows)} numbers: {', '.join(written.values())}")


def _paper(paper: Paper) -> _Reproduction:
    """A paper's part of the package; scikit-learn is slow to load, and other commands need none."""
    if paper is Paper.SQM:
        from research.reproduce import sqm

        return _Reproduction(sqm.NOTES, sqm.sqm)
    if paper is Paper.FUNCTIONAL:
        from research.reproduce import functional

        return _Reproduction(functional.NOTES, functional.functional)
    if paper is Paper.SYNTHESIS:
        from research.reproduce import synthesis

        return _Reproduction(synthesis.NOTES, synthesis.synthesis, synthesis.verdicts)
    if paper is Paper.AFE:
        from research.reproduce import afe

        made = afe.Reproduction()
        return _Reproduction(afe.NOTES, made.make, afe.verdicts, made.pictures)
    if paper is Paper.DPVI:
        from research.reproduce import dpvi

        return _Reproduction(dpvi.NOTES, dpvi.dpvi)
    from research.reproduce import hdp, required

    return _Reproduction(hdp.NOTES, hdp.hdp, lambda rows: [one.cells for one in required.verdicts(rows)])


def _command(paper: Paper, options: Options) -> str:
    """What to type to get the same numbers again."""
    words = ["python", "-m", "research", "reproduce", str(paper)]
    words += ["--runs", str(options.runs), "--seed", str(options.seed)]
    words += [f"--{name}" for name in ("quick", "full") if getattr(options, name)]
    return shlex.join([*words, *(["--peers", str(options.peers)] if options.peers else [])])


def _write_markdown(
    path: Path, title: str, notes: Sequence[str], command: str, rows: Sequence[Row], required: Sequence[Cells]
) -> Path:
    said = "\n".join(f"- {note}" for note in notes)
    asked = "".join(f"| {' | '.join(cells)} |\n" for cells in required)
    if asked:
        asked = f"### What is asked of it\n\n| requirement | found | kept |\n|---|---|---|\n{asked}\n"
    text = f"# {title}\n\nMade by `{command}`. Mean and deviation over the runs.\n\n{said}\n\n{asked}{markdown(rows)}"
    path.write_text(text, encoding="utf-8")
    return path


def _prepare(out: Path) -> None:
    """Make the folder and write to it, before minutes are spent on what could not be kept."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=out).close()
    except OSError as error:
        raise StorageError(f"{out} cannot be written ({error.strerror}): choose another --out [SO045]") from None
