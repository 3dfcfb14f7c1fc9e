"""Workers read, check and split their party's table before the first lane, and may be killed there too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from colonnade.errors import EngineError
from colonnade.study.engine.contract import Gone
from colonnade.study.lanes import helping
from colonnade.study.lanes.words import Help
from colonnade.tables.sources import pieces
from colonnade.tables.spool import partitions, repeated
from tests.support.errors import raises
from tests.support.studies import check_words

from .conftest import Laned, Watched, error_of

Make = Callable[..., Laned]


@pytest.fixture(autouse=True)
def few_rows_are_many_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "_PIECE_BYTES", 1)
    monkeypatch.setattr(repeated, "_ROWS", 50)
    monkeypatch.setattr(partitions, "_RUN_BYTES", 5000)


@pytest.fixture
def asked(crews: type[Watched], monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """Every chore that a worker was given, and by whose head."""
    given: list[tuple[str, Any]] = []
    command = Watched.command

    def noted(self: Watched, worker: int, word: Any) -> None:
        command(self, worker, word)
        assert isinstance(word, Help)
        given.append((self.name, word.chore))
        if (hook := getattr(crews, "helping", None)) is not None:
            hook(self, worker, word.chore)

    monkeypatch.setattr(Watched, "command", noted)
    return given


def in_folders(study: Laned, files: int = 4) -> None:
    """Every party's table becomes a folder of Parquet files."""
    for name in study.parties:
        table = pa.csv.read_csv(study.folder / name / f"{name}.csv")
        folder = study.folder / name / "table"
        folder.mkdir()
        size = -(-table.num_rows // files)
        for place in range(files):
            pq.write_table(table.slice(place * size, size), folder / f"{place}.parquet")
        study.edit(f"{name}/party.toml", r'^data = ".*"', 'data = "table"')


def kinds(given: list[tuple[str, Any]], name: str) -> list[str]:
    return [type(chore).__name__ for whose, chore in given if whose == name]


@pytest.mark.system
@pytest.mark.usefixtures("without_noise")
def test_folders_of_parquet_and_a_worker_killed_at_each_kind_of_work(
    laned: Make, crews: type[Watched], asked: list[tuple[str, Any]]
) -> None:
    study = laned(rows=200)
    expected = study.values(study.in_threads(study.plain))
    in_folders(study)
    killed = set[str]()

    def kill(crew: Watched, worker: int, chore: Any) -> None:
        kind = type(chore).__name__
        if crew.name == "shop" and kind not in killed and chore.number == 1:
            killed.add(kind)
            assert crew.kill(worker)

    crews.helping = kill  # type: ignore[attr-defined]
    out = study.in_threads()
    assert study.values(out) == expected
    assert expected[0] == study.common
    assert killed == {"Copy", "Seek", "Place"}
    for name in study.parties:
        found = kinds(asked, name)
        assert found.count("Copy") >= 4  # more, if a worker was killed before it was done
        assert found.count("Seek") > 1
        assert found.count("Place") > 1
    lanes = study.facts(out)["shop"]["lanes"]
    assert (lanes["lost_workers"], lanes["replaced_workers"], lanes["done"]) == (3, 3, 4)
    assert not study.left_behind()


def repeat_a_key(folder: Path) -> str:
    """The third row stands once more at the end."""
    first, last = (pq.read_table(folder / f"{place}.parquet") for place in (0, 3))
    pq.write_table(pa.concat_tables([last, first.slice(2, 1)]), folder / "3.parquet")
    total = sum(pq.read_metadata(path).num_rows for path in folder.iterdir())
    return f"rows 3, {total}: the key in 'person_id' occurs more than once"


def spoil_a_cell(folder: Path) -> str:
    """A number in the third file is none."""
    for path in sorted(folder.iterdir()):
        table = pq.read_table(path)
        texts = [str(each) for each in table["income"].to_pylist()]
        if path.name == "2.parquet":
            texts[1] = "rich"
        pq.write_table(table.set_column(table.column_names.index("income"), "income", pa.array(texts)), path)
    before = sum(pq.read_metadata(folder / f"{place}.parquet").num_rows for place in (0, 1))
    return f"{folder}: column 'income', row {before + 2}: the cell is not a number"


@pytest.mark.system
@pytest.mark.parametrize("spoil", [repeat_a_key, spoil_a_cell])
def test_what_workers_find_wrong_in_a_table_is_named_by_the_head_and_costs_nothing(
    laned: Make, crews: type[Watched], asked: list[tuple[str, Any]], spoil: Callable[[Path], str]
) -> None:
    study = laned(rows=60, join=5)
    in_folders(study)
    study.edit("bank/party.toml", r"^data = ", 'misfits = "refuse"\ndata = ')
    folder = study.folder / "bank" / "table"
    said = spoil(folder)
    check_words(error_of(study.ended())["bank"], said, str(folder))
    assert "Place" not in kinds(asked, "bank")
    assert not set(study.states("bank")) & {"sent", "committed"}
    assert not study.left_behind()


class Dying:
    """Workers that are lost, one after the other, with whatever they get."""

    def __init__(self) -> None:
        self.given, self.lost = list[int](), 0

    def idle(self) -> int | None:
        return None if len(self.given) > self.lost else len(self.given)

    def command(self, worker: int, command: Help) -> None:
        self.given.append(command.number)

    def heard(self, seconds: float) -> Gone:
        self.lost += 1
        return Gone(len(self.given) - 1, "it was killed")


def test_work_with_which_every_worker_is_lost_ends_the_study() -> None:
    workers: Any = Dying()
    with raises(EngineError, "EN029", "4"):
        list(helping.shared(workers, [None, None], lambda: None))  # type: ignore[list-item]
    assert workers.given == [0, 0, 0, 0]
