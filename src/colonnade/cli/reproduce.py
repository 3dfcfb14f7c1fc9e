"""``colonnade reproduce``: the papers' tables and figures again, beside what they print."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from colonnade.cli.output import Json, emit, progress_bar, say, speak_json
from colonnade.errors import StorageError
from colonnade.report.reproduction import write_reproduction
from colonnade.reproduce.options import Options
from colonnade.reproduce.results import Row, markdown, write_csv


class Paper(StrEnum):
    """What can be reproduced."""

    SQM = "sqm"
    FUNCTIONAL = "functional"


_Make = Callable[[Options], Iterator[Row]]
_TITLES = {
    Paper.SQM: "The Skellam quantisation mechanism, again",
    Paper.FUNCTIONAL: "The functional mechanism, again",
}
_QUICK_RUNS = 2


def reproduce(
    paper: Annotated[Paper, typer.Argument(help="Whose tables and figures.")],
    runs: Annotated[int, typer.Option("--runs", min=1, max=1000, help="Runs of each point.")] = 20,
    quick: Annotated[bool, typer.Option("--quick", help="Two runs on a little of the data: does it work?")] = False,
    full: Annotated[bool, typer.Option("--full", help="The paper's size also where it takes long.")] = False,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Splits, made-up data and noise.")] = 2024,
    data: Annotated[
        Path | None, typer.Option("--data", help="The folder of the data sets.  [default: COLONNADE_DATA]")
    ] = None,
    peers: Annotated[
        Path | None, typer.Option("--peers", help="A CSV of lines measured elsewhere, such as diffprivlib's.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Where to leave the results.")] = Path("runs/reproduce"),
    json: Json = False,
) -> None:
    """Reproduce a paper's tables and figures, beside its numbers."""
    speak_json(json)
    _prepare(out)
    title, (notes, make) = _TITLES[paper], _paper(paper)
    with progress_bar(not json) as progress:
        options = Options(min(runs, _QUICK_RUNS) if quick else runs, quick, full, seed, data, peers, progress)
        rows = list(make(options))
    command = _command(paper, options)
    name = f"reproduce-{paper}"
    files = {
        "csv": write_csv(out / f"{name}.csv", rows),
        "markdown": _write_markdown(out / f"{name}.md", title, notes, command, rows),
        "html": write_reproduction(out / f"{name}.html", title, notes, rows),
    }
    written = {kind: str(path) for kind, path in files.items()}
    if json:
        emit({"paper": paper, "command": command, **written, "rows": [row.to_dict() for row in rows]})
        return
    say(markdown(rows))
    say(f"{len(rows)} numbers: {files['csv']}, {files['markdown']}, {files['html']}")


def _paper(paper: Paper) -> tuple[Sequence[str], _Make]:
    """What to say about a paper and how to measure it; scikit-learn is slow to load, and other commands need none."""
    from colonnade.reproduce import functional, sqm

    return (sqm.NOTES, sqm.sqm) if paper is Paper.SQM else (functional.NOTES, functional.functional)


def _command(paper: Paper, options: Options) -> str:
    """What to type to get the same numbers again."""
    words = ["colonnade", "reproduce", str(paper), "--runs", str(options.runs), "--seed", str(options.seed)]
    words += [f"--{name}" for name in ("quick", "full") if getattr(options, name)]
    return shlex.join([*words, *(["--peers", str(options.peers)] if options.peers else [])])


def _write_markdown(path: Path, title: str, notes: Sequence[str], command: str, rows: Sequence[Row]) -> Path:
    said = "\n".join(f"- {note}" for note in notes)
    text = f"# {title}\n\nMade by `{command}`. Mean and deviation over the runs.\n\n{said}\n\n{markdown(rows)}"
    path.write_text(text, encoding="utf-8")
    return path


def _prepare(out: Path) -> None:
    """Make the folder and write to it, before minutes are spent on what could not be kept."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=out).close()
    except OSError as error:
        raise StorageError(f"{out} cannot be written ({error.strerror}): choose another --out") from None
