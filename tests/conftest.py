from __future__ import annotations

import gc
import json
import os
import queue
import re
import signal
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from colonnade.testing import seeded as _seeded

from hypothesis import HealthCheck, settings

from colonnade.errors import ColonnadeError
from colonnade.randomness import Stream
from tests.support.repeatable import SEED, repeat

repeat()
_ANY_SPEED: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], "print_blob": True}
settings.register_profile("same", derandomize=not SEED, database=None, max_examples=50, **_ANY_SPEED)
settings.register_profile("new", max_examples=100, **_ANY_SPEED)  # `make slow` looks for examples that nobody has seen
settings.load_profile("same")

# The files that take longest, by processor seconds. Two workers that take whole files end together if these come first.
_LONGEST = (
    "docs/test_console.py", "kinds/test_without_a_kind.py", "docs/test_notebooks.py",
    "docs/test_shell.py", "audit/test_games.py", "study/lanes/test_lanes.py", "federation/test_processes.py",
    "wire/test_contract.py", "cli/test_said.py", "browser/test_federation.py",
    "protocols/align/test_align.py", "protocols/test_malformed.py", "cli/test_processes.py",
    "mpc/fixed_point/test_arithmetic.py", "kinds/regression/test_regression.py", "wire/test_links.py",
    "study/engine/test_engines.py", "study/test_sources.py", "kinds/synthesis/test_synthesizer.py",
    "kinds/tables/test_marginals.py", "kinds/synthesis/test_studies.py", "kinds/synthesis/mixture/test_mixture.py",
    "study/test_refusals.py", "study/test_failures.py", "kinds/glm/test_studies.py", "study/test_fork_server.py",
    "study/test_earlier_releases.py", "audit/test_time.py", "federation/test_agent.py",
    "privacy/test_noise_exact.py", "research/test_twins.py", "research/test_cheats.py", "privacy/test_accountant.py",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first, as listed; all others stay in their order."""
    places = {Path(__file__).parent / name: place for place, name in enumerate(_LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


SLOWEST = 20
INSTALLED_BY = {
    "ray": "make system",
    "nbformat": "make system",
    "phe": "make bench",
}
"""What installs a module, where it is not ``make test``."""
_MISSING = re.compile(r"could not import '([\w]+)[\w.]*'.*")


def _times(reports: list[pytest.TestReport]) -> list[str]:
    """Seconds by folder, and the slowest tests, in four lines."""
    folders, tests = Counter[str](), Counter[str]()
    for report in reports:
        path = report.nodeid.partition("::")[0]
        folder = "/".join(path.split("/")[1:-1][:2]) or "tests"
        folders[folder] += report.duration
        tests[report.nodeid.removeprefix("tests/")] += report.duration
    whole = sum(folders.values())
    spent = ", ".join(f"{folder} {seconds:.0f} s" for folder, seconds in folders.most_common() if seconds >= 0.5)
    slowest = [f"{name} {seconds:.1f} s" for name, seconds in tests.most_common(SLOWEST)]
    return [
        f"{len(tests)} tests took {whole:.0f} s of all workers together; by folder:",
        spent,
        f"the slowest {len(slowest)} took {sum(dict(tests.most_common(SLOWEST)).values()):.0f} s:",
        ", ".join(slowest),
    ]


def _left_out(reports: list[pytest.TestReport]) -> list[str]:
    """Every reason for which tests were skipped, once; it names the command that installs what is missing."""
    reasons = Counter[str]()
    for report in reports:
        said = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons[_MISSING.sub(_command, re.sub(r"^Skipped: ", "", said))] += 1
    return [f"{count} left out: {reason}" for reason, count in reasons.most_common()]


def _command(missing: re.Match[str]) -> str:
    return f"no {missing[1]}: {INSTALLED_BY.get(missing[1], 'make test')} installs it"


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Where the time went, and what was left out; nothing of a run that chose tests by hand."""
    found = terminalreporter.stats
    ran = [report for name in ("passed", "failed") for report in found.get(name, ()) if hasattr(report, "duration")]
    for line in _left_out(found.get("skipped", [])):
        terminalreporter.write_line(line)
    if len(ran) > 200:
        for line in _times(ran):
            terminalreporter.write_line(line)


gc.disable()  # nothing that collection makes goes away


def pytest_collection_finish() -> None:
    """From here on tests run, as everything else does, with the collector of dead objects."""
    gc.enable()


@pytest.fixture
def stream() -> Stream:
    """A repeatable stream, so that a statistical test never fails by bad luck."""
    return _seeded(20240)


@pytest.fixture(autouse=True)
def same_networks() -> None:
    """Where torch is loaded, modules start with the same weights in every run, whatever ran before."""
    if (torch := sys.modules.get("torch")) is not None:
        torch.default_generator.manual_seed(20240)  # not that of cards, which looks for them first


@pytest.fixture(autouse=True)
def speaking_text() -> None:
    """A command with --json that ran before, in this process, does not make later ones mute."""
    if (output := sys.modules.get("colonnade.cli.output")) is not None:
        output.speak_json(False)


_HERE = str(Path(__file__).parent)
_COPIES = frozenset({"_error", "first_cause", "lose", "raise_anew"})
"""Functions that make an error anew from what another said, whoever that was."""
_UNCODED: list[str] = []
_made = ColonnadeError.__init__


def _noted(error: ColonnadeError, *args: Any) -> None:
    _made(error, *args)
    if not args or error.code is not None:
        return
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name == "__init__":
        frame = frame.f_back
    if frame is not None and not frame.f_code.co_filename.startswith(_HERE) and frame.f_code.co_name not in _COPIES:
        place = f"{frame.f_code.co_filename}:{frame.f_lineno} ({frame.f_code.co_name})"
        _UNCODED.append(f"{place}: {type(error).__name__} without a code: {error}")


ColonnadeError.__init__ = _noted  # type: ignore[method-assign]


@pytest.fixture(autouse=True)
def every_error_has_a_code() -> Iterator[None]:
    """An error without a code is made by tests alone; whoever else makes one fails the test that is running."""
    _UNCODED.clear()
    yield
    assert not _UNCODED, "\n".join(_UNCODED)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Where the real data sets are; tests that need them skip with a reason where they are not."""
    named = os.environ.get("COLONNADE_DATA")
    folder = Path(named) if named else Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no real data sets: set COLONNADE_DATA (looked in {folder})")
    return folder


@pytest.fixture
def in_this_process(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """A command in this process: its exit code, what it printed and what it complained of."""
    from colonnade.cli.app import command_line
    from colonnade.cli.output import speak_json

    def call(*words: object) -> tuple[int, str, str]:
        speak_json(False)
        monkeypatch.setattr(sys, "argv", ["colonnade", *map(str, words)])
        monkeypatch.setattr(signal, "signal", lambda *_: None)
        capfd.readouterr()
        code = 0
        try:
            command_line()
        except SystemExit as end:
            code = int(end.code or 0)
        return code, *capfd.readouterr()

    return call


@pytest.fixture
def colonnade(in_this_process: Callable[..., tuple[int, str, str]]) -> Callable[..., Any]:
    """The same with an expected code: what was printed, as text or, with ``--json``, as what the JSON says."""

    def call(*words: object, code: int = 0) -> Any:
        ended, out, err = in_this_process(*words)
        assert ended == code, (out, err)
        return json.loads(out) if "--json" in words else out + err

    return call


class QueueLink:
    """A link between two threads: nothing but the two methods that the committee asks for."""

    def __init__(self, out: queue.SimpleQueue[Any], into: queue.SimpleQueue[Any]) -> None:
        self._out, self._into = out, into
        self.sent: list[dict[str, Any]] = []

    def send(self, kind: str, /, **fields: Any) -> None:
        self.sent.append(fields)
        self._out.put((kind, fields))

    def recv(self, kind: str, most: int, /) -> dict[str, Any]:
        got, fields = self._into.get(timeout=300)
        if got is None:
            raise ConnectionError("the peer failed")
        assert got == kind
        return fields


def in_threads(programs: Mapping[str, Callable[[dict[str, QueueLink]], Any]]) -> dict[str, Any]:
    """Run one program a participant, each in its own thread with links to all others."""
    lines = {(a, b): queue.SimpleQueue() for a in programs for b in programs if a != b}
    results: dict[str, Any] = {}
    failures: list[Exception] = []

    def run(name: str) -> None:
        links = {peer: QueueLink(lines[name, peer], lines[peer, name]) for peer in programs if peer != name}
        try:
            results[name] = programs[name](links)
        except Exception as error:
            failures.append(error)
            for peer in links:
                lines[name, peer].put((None, {}))

    threads = [threading.Thread(target=run, args=(name,), name=name) for name in programs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(600)
    if failures:
        raise failures[0]
    return results


@pytest.fixture(name="in_threads", scope="session")
def _in_threads() -> Callable[..., dict[str, Any]]:
    return in_threads


@pytest.fixture(scope="session")
def aligned() -> Callable[..., Any]:
    """A federation that had to find its people first: ``aligned(tables, schemas, id)``."""
    from tests.support.federations import aligned

    return aligned


@pytest.fixture(scope="session")
def unaligned() -> Callable[..., Any]:
    """Tables with people whom other parties lack."""
    from tests.support.federations import unaligned

    return unaligned


@pytest.fixture
def nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounding without coins."""
    from tests.support import protocols

    protocols.nearest(monkeypatch)


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch, nearest: None) -> None:
    """Protocols without noise and without the coins of rounding, so that the sums can be compared."""
    from tests.support import protocols

    protocols.no_noise(monkeypatch)


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Study folders of bank, shop and clinic: ``trial(rows)``."""
    from tests.support.studies import Trial

    made: list[Trial] = []

    def make(rows: int = 200, **kwargs: Any) -> Trial:
        made.append(Trial(tmp_path / f"study{len(made)}", rows, **kwargs))
        return made[-1]

    yield make
    for each in made:
        each.clean_up()
