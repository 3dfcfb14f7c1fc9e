"""A warm process that runs tests in children of its own: what tests import from elsewhere is imported once.

It stands alone and is started as a file, in a private copy of the repository: it must not import what is tested. One
request a line on its input, one answer a line on its output.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import shutil
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import pytest
from _pytest.assertion.rewrite import AssertionRewritingHook

_PATIENCE = 0.01


class Watch:
    """Only the wanted tests, in the wanted order; which of them failed."""

    def __init__(self, wanted: list[str]) -> None:
        self._wanted = wanted
        self.missing: list[str] = []
        self.failed: list[str] = []
        self.ran = 0

    @pytest.hookimpl(trylast=True)  # the suite's own order is for whole runs
    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        here = {item.nodeid: item for item in items}
        functions: dict[str, list[Any]] = {}
        for item in items:
            functions.setdefault(item.nodeid.partition("[")[0], []).append(item)
        chosen: dict[str, Any] = {}
        for name in self._wanted:
            if name in here:
                chosen[name] = here[name]
                continue
            self.missing.append(name)
            if others := functions.get(name.partition("[")[0]):  # a parameter has another name now
                if "[" not in name:  # all of them are wanted
                    chosen |= {item.nodeid: item for item in others}
                others = [item for item in others if item.nodeid not in chosen and item.nodeid not in self._wanted]
                if others:
                    chosen[others[0].nodeid] = others[0]
        items[:] = chosen.values()

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.failed.append(report.nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.ran += report.when == "call"
        if report.failed and report.nodeid not in self.failed:
            self.failed.append(report.nodeid)


def _child(request: dict[str, Any], answer: Path, log: Path, folder: Path) -> None:
    os.setsid()
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    files = list(dict.fromkeys(test.partition("::")[0] for test in request["tests"]))
    watch = Watch(request["tests"])
    words = [
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-m",
        "not slow",
        f"--basetemp={folder / 'tmp'}",
        *request["words"],
        *files,
    ]
    code = int(pytest.main(words, plugins=[watch]))
    said = {"code": code, "failed": watch.failed, "missing": watch.missing, "ran": watch.ran}
    answer.write_text(json.dumps(said), encoding="utf-8")
    os._exit(0)


def _orphans() -> list[int]:
    """Children of this process: those of children that ended are its own since then."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            words = (entry / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            if int(words[1]) == os.getpid():
                found.append(int(entry.name))
    return found


def _tidy() -> None:
    """Nothing that a test has started is left."""
    for _ in range(200):
        left = _orphans()
        if not left:
            return
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _served(request: dict[str, Any], folder: Path) -> dict[str, Any]:
    answer, log = folder / "answer.json", folder / "log.txt"
    answer.unlink(missing_ok=True)
    shutil.rmtree(folder / "tmp", ignore_errors=True)
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        try:
            _child(request, answer, log, folder)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(70)
    late = False
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if time.monotonic() - began > request["limit"]:
            late = True
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            break
        time.sleep(_PATIENCE)
    _tidy()
    spent = round(time.monotonic() - began, 2)
    said = json.loads(answer.read_text(encoding="utf-8")) if answer.exists() and not late else {"code": None}
    return {"failed": [], "missing": [], "ran": 0, **said, "late": late, "seconds": spent}


def main() -> None:
    folder, *warm = Path(sys.argv[1]), *sys.argv[2:]
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in warm:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
    # Plugins of pytest are warm too; without this it would warn of that, and a warning is an error.
    AssertionRewritingHook._warn_already_imported = lambda *_: None  # type: ignore[method-assign]
    _no_shrinking()
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        print(json.dumps(_served(json.loads(line), folder)), flush=True)  # noqa: T201


def _no_shrinking() -> None:
    """An example that fails is enough: nobody reads it, so it need not be small."""
    from hypothesis import Phase, settings

    plain = settings.register_profile

    def register(name: str, parent: Any = None, **kwargs: Any) -> None:
        plain(name, parent, **{"phases": [Phase.explicit, Phase.reuse, Phase.generate, Phase.target], **kwargs})

    type.__setattr__(settings, "register_profile", staticmethod(register))  # the class itself refuses


if __name__ == "__main__":
    main()
