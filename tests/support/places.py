"""A folder with everybody's keys, tables and policies, in which studies of made-up people are written and run."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from copy import copy
from pathlib import Path

from colonnade.cli import initialise
from colonnade.cli.results import publish
from colonnade.models import Estimator
from colonnade.privacy import Ledger, Observer
from colonnade.study import PartyConfig, Study
from colonnade.study.local import folder_of
from tests.support.studies import people_of, play, runnable_text, scatter


class Place:
    """These columns of each party; their policies allow these kinds and epsilons.

    With ``align`` their tables are in different orders and each lacks some people, and every study finds them first.
    """

    def __init__(
        self,
        folder: Path,
        columns: Mapping[str, Sequence[str]],
        kinds: str,
        epsilon: str,
        task: str,
        rows: int = 300,
        align: bool = False,
    ) -> None:
        self.folder, self.columns, self.align, self.pins = folder, columns, align, None
        people_of(rows).write(folder / "tables")
        (folder / "schemas").mkdir()
        for place, name in enumerate(columns):
            if align:
                scatter(folder / "tables" / f"{name}.csv", place)
            people_of(rows).schemas[name].save(folder / "schemas" / f"{name}.toml")
            initialise.party(name, folder / name, f"../tables/{name}.csv", "person_id", "auto-within-budget")
            self.set(name, "tasks", f"[{kinds}]")
            self.set(name, "epsilon", f"{{ {epsilon} }}")
        self.pins = initialise.trial(self.study("keys", task).path)

    def copied(self, folder: Path) -> Place:
        """The same in another folder, where a test may change files."""
        shutil.copytree(self.folder, folder)
        other = copy(self)
        other.folder = folder
        return other

    def config_file(self, name: str) -> Path:
        return self.folder / name / "party.toml"

    def config(self, name: str) -> PartyConfig:
        return PartyConfig.load(self.config_file(name))

    def edit(self, name: str, old: str, new: str) -> None:
        """Replace a text that a party's file has."""
        text = self.config_file(name).read_text()
        assert old in text
        self.config_file(name).write_text(text.replace(old, new, 1))

    def set(self, name: str, key: str, value: str) -> None:
        """Give a key of a party's file, which may be commented out, this value."""
        before, line = self.config_file(name).read_text(), f"{key} = {value}"
        text, found = re.subn(rf"^(# )?{key} = .*$", line, before, count=1, flags=re.MULTILINE)
        assert found, key
        self.config_file(name).write_text(text)

    def study(self, name: str, task: str, budget: str = "[budget]\nepsilon = 8.0\n", more: str = "") -> Study:
        path = self.folder / f"{name}.toml"
        limits = f'[align]\non = "person_id"\n{more}' if self.align else f"reconnect = 1\n{more}"
        path.write_text(runnable_text(name, task, budget, self.columns, limits, self.pins))
        return Study.load(path)

    def run(self, study: Study) -> tuple[Path, dict[str, Estimator]]:
        """Everybody's model, over TLS in threads, and the folder with what was published."""
        out = self.folder / "runs" / study.name
        models = play(study, out)
        publish(study, out, {name: folder_of(out, name) for name in models})
        return out, models

    def spent(self, name: str, observer: str) -> float:
        return Ledger(self.folder / name / "ledger.sqlite").epsilon_spent(Observer.party(observer), 1e-5)
