"""Agents run a study whose participants connect to each other, as the study file and their party files say."""

from __future__ import annotations

import json
from pathlib import Path

from colonnade.study.network import bytes_by_way
from tests.support.ports import free_port
from tests.support.standing import HUB, PARTIES, standing


def test_agents_pass_on_what_files_say_of_links(tmp_path: Path) -> None:
    with standing(
        tmp_path / "f", start=(HUB,), small=True, approval="auto-within-budget", hub="dial = false\n"
    ) as found:
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
        (relayed_by,) = found.of(HUB).glob("hub/attempts/*/*/run.json")
    run = json.loads(record.read_text(encoding="utf-8"))
    coordinator = json.loads(relayed_by.read_text(encoding="utf-8"))
    assert {(way["way"], way["why"]) for peer, way in coordinator["links"].items() if peer != "clinic"} == {
        ("hub", "this participant does not dial, and the other has not dialled")
    }
    assert run["links"]["shop"]["way"] == run["links"]["clinic"]["way"] == "direct"
    assert run["links"]["coordinator"]["way"] == "hub"
    sent, relayed = bytes_by_way(run)
    assert sent == run["links"]["shop"]["direct_sent"] + run["links"]["clinic"]["direct_sent"] > 0
    assert relayed > 0
