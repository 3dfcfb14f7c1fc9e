"""Direct links of workers: where each listens, and by which ways packets went, lane after lane."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from colonnade.study.network import recorded
from colonnade.wire import Endpoint
from colonnade.wire.direct import DIRECTLY, Direct

Links = dict[str, dict[str, Any]]
"""For every peer, what ``run.json`` says of the way to it."""
_COUNTED = ("direct_sent", "direct_received", "hub_sent", "hub_received", "connections")


class WorkerLinks:
    """Those of one worker, in one lane after the other; without ``direct``, everything goes through hubs."""

    def __init__(self, direct: Direct | None, host: str | None) -> None:
        self._direct = None if direct is None else direct.of_worker(host)
        self._through_hub: dict[str, str] = {}

    @property
    def settings(self) -> dict[str, Any]:
        """How to join the next lane."""
        return {} if self._direct is None else {"direct": self._direct, "told": self._told}

    def ended(self, place: Endpoint) -> tuple[Links, dict[str, str]]:
        """What came of a lane's links, and for each peer a sentence on why its packets went through the hub."""
        ways = place.ways
        if self._direct is not None:
            # A wall that swallows what is sent would cost each lane a moment; packets go through the hub until then.
            self._direct = replace(self._direct, patient=all(way.links or not way.dialled for way in ways.values()))
        said, self._through_hub = self._through_hub, {}
        return recorded(ways, place.counters.peers), said

    def _told(self, peer: str, sentence: str) -> None:
        if sentence != DIRECTLY:
            self._through_hub[peer] = sentence


def together(all_lanes: Links, lane: Mapping[str, Mapping[str, Any]]) -> None:
    """Add the ways of one lane to those of others."""
    for peer, now in lane.items():
        before = all_lanes.setdefault(peer, {"lanes": 0, "way": now["way"], **dict.fromkeys(_COUNTED, 0)})
        before["lanes"] += 1
        before.update({key: before[key] + now[key] for key in _COUNTED})
        if before["way"] != now["way"]:
            before["way"] = "both"
        if "why" in now:
            before["why"] = now["why"]
