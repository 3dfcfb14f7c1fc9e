"""Child processes: limited, ended with their parent, and known as dead or alive whoever started them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from colonnade.errors import OfficeError
from colonnade.standing.attempts import give_back
from colonnade.standing.children import Child, Limits, end_by_force, is_alive, wait_for_end
from colonnade.standing.outcome import outcome_of
from colonnade.study import PartyConfig, Study
from colonnade.study.forks import Forks
from tests.support.errors import check_said, raises
from tests.support.organisations import Organisations

PATIENCE = 120.0


def until(is_so: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A coordinator's command that waits for parties which never come."""
    from tests.support.studies import Trial

    trial = Trial(tmp_path_factory.mktemp("trial") / "study", 50)
    return trial.file, trial.folder / "coordinator" / "coordinator.key"


def coordinator(waiting: tuple[Path, Path], folder: Path) -> list[str]:
    study, key = waiting
    return ["coordinator", str(study), "--key", str(key), "--out", str(folder), "--pipe", "--while-open"]


def listening(folder: Path) -> bool:
    path = folder / "events.jsonl"
    return path.exists() and '"connected"' in path.read_text()


@pytest.fixture(scope="module", params=["forked", "spawned"])
def forks(request: pytest.FixtureRequest) -> Iterator[Forks | None]:
    """Both ways in which a child can begin."""
    found = Forks() if request.param == "forked" else None
    yield found
    if found is not None:
        found.close()


def test_a_child_that_is_stopped_says_so_in_its_record(
    waiting: tuple[Path, Path], tmp_path: Path, forks: Forks | None
) -> None:
    child = Child.start(coordinator(waiting, tmp_path), tmp_path, Limits(4 * 10**9, 600), forks)
    until(lambda: listening(tmp_path), "it listens")
    assert is_alive(tmp_path)
    with raises(OfficeError, "OF005"):
        Child.start(["--version"], tmp_path)
    assert child.stop() == 130
    assert not is_alive(tmp_path)
    ended, said = outcome_of(tmp_path, 130)
    assert ended == "lost"
    check_said(said, "CO041")


@pytest.mark.parametrize("how", ["None", "Forks()"])
def test_a_child_ends_when_its_parent_is_killed(waiting: tuple[Path, Path], tmp_path: Path, how: str) -> None:
    command = coordinator(waiting, tmp_path)
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"""
import time
from pathlib import Path
from colonnade.standing.children import Child
from colonnade.study.forks import Forks
child = Child.start({command!r}, Path({str(tmp_path)!r}), forks={how})
time.sleep(600)
""",
        ]
    )
    try:
        until(lambda: listening(tmp_path), "it listens")
    finally:
        parent.kill()
        parent.wait()
    assert wait_for_end(tmp_path, PATIENCE)
    assert outcome_of(tmp_path, None)[0] == "lost"


def test_a_child_that_does_not_end_is_killed_by_the_next_parent(tmp_path: Path) -> None:
    """Standard input stays open in this test's hands, as if the child had not noticed that its parent is gone."""
    holding = f"""
import fcntl, os, time
file = open({str(tmp_path / "alive")!r}, "w")
fcntl.flock(file, fcntl.LOCK_EX)
file.write(str(os.getpid()))
file.flush()
print("held", flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", holding], stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == b"held\n"
        assert is_alive(tmp_path)
        assert not wait_for_end(tmp_path, 0.1)
        end_by_force(tmp_path)
        assert started.wait(timeout=PATIENCE) == -9
    assert not is_alive(tmp_path)


def test_a_child_that_takes_too_long_is_ended(waiting: tuple[Path, Path], tmp_path: Path, forks: Forks | None) -> None:
    child = Child.start(coordinator(waiting, tmp_path), tmp_path, Limits(seconds=0.5), forks)
    until(lambda: child.poll() is not None, "it was ended")
    assert child.overran


@pytest.mark.parametrize(
    ("facts", "status", "ended"),
    [
        ({"status": "failed", "exit_code": 22, "message": "shop is gone"}, 22, "lost"),
        ({"status": "failed", "exit_code": 23, "message": "shop stopped"}, 23, "lost"),
        ({"status": "failed", "exit_code": 21, "message": "no hub"}, 21, "lost"),
        ({"status": "failed", "exit_code": 130, "message": "interrupted"}, 130, "lost"),
        ({"status": "failed", "exit_code": 11, "message": "row 3"}, 11, "stopped"),
        ({"status": "failed", "exit_code": 25, "message": "lies"}, 25, "stopped"),
        ({"status": "running"}, -9, "lost"),
        ({"status": "running"}, None, "lost"),
        ({"status": "running"}, -24, "stopped"),
        (None, -9, "lost"),
    ],
)
def test_how_an_attempt_ended(tmp_path: Path, facts: dict[str, Any] | None, status: int | None, ended: str) -> None:
    if facts is not None:
        (tmp_path / "run.json").write_text(json.dumps(facts))
    assert outcome_of(tmp_path, status)[0] == ended
    (tmp_path / "model.json").write_text("{}")
    assert outcome_of(tmp_path, status)[0] == "finished", "whoever has the result has finished"


def test_an_error_before_the_record_began_is_read_from_the_output(tmp_path: Path) -> None:
    said = {"error": "StudyError", "message": "no such file", "exit_code": 13}
    (tmp_path / "output.jsonl").write_text(f"a log line\n{json.dumps(said)}\n")
    assert outcome_of(tmp_path, 13) == ("stopped", "no such file")


def test_a_reservation_is_given_back_only_if_nothing_had_left(tmp_path: Path) -> None:
    three = Organisations(tmp_path / "federation")
    config = PartyConfig.load(three.party_file("bank"))
    text = three.study(match=False).read_text() + '[coordinator]\naddress = "127.0.0.1:7000"\n'
    (three.folder / "alone.toml").write_text(text)
    study = Study.load(three.folder / "alone.toml")

    def reserved() -> tuple[Path, Any]:
        entry = config.book().reserve(
            study.name, study.digest, study.events, study.trust, config.caps, early=config.failures
        )
        folder = tmp_path / str(entry.id)
        folder.mkdir()
        (folder / "events.jsonl").write_text(json.dumps({"what": "budget reserved", "entry": entry.id}) + "\n{")
        return folder, entry

    kept, sent = reserved()
    config.book().mark_sent(sent)
    back, _ = reserved()
    assert not give_back(config, kept), "shares had left"
    assert give_back(config, back)
    assert not give_back(config, back), "once"
    assert not give_back(config, tmp_path), "nothing was reserved"
    assert [entry.state for entry in config.book().entries()] == ["sent", "released"]
