"""Agents run a study whose participants connect to each other, as the study file and their party files say."""

from __future__ import annotations

import json
from pathlib import Path

from colonnade.study.network import bytes_by_way
from tests.ports import free_port

from .kit import HUB, PARTIES, standing


def test_agents_pass_on_what_files_say_of_links(tmp_path: Path) -> None:
    with standing(tmp_path / "f", start=(HUB,), small=True, approval="auto-within-budget") as found:
        with open(found.study, "a", encoding="utf-8") as file:
            file.write('\n[coordinator]\nlinks = "direct"\n')  # the address is the hub's
        for party in ("bank", "shop"):
            port = free_port()
            with open(found.file(party), "a", encoding="utf-8") as file:
                file.write(f'\n[network]\nlisten = "127.0.0.1:{port}-{port + 9}"\n')
        found.start(*PARTIES)
        study = found.propose()
        found.wait_all(study, "done")
        (record,) = (found.of("bank") / "agent").glob("**/attempts/*/run.json")
    run = json.loads(record.read_text(encoding="utf-8"))
    assert run["links"]["shop"]["way"] == run["links"]["clinic"]["way"] == "direct"
    sent, relayed = bytes_by_way(run)
    assert sent > relayed
