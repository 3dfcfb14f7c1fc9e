"""``[network]`` of a party file: where this party waits for direct links of its peers, and what is recorded of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, field_validator, model_validator

from colonnade.study.keys import Part
from colonnade.wire.counters import Traffic
from colonnade.wire.direct import Direct, Ports, Way
from colonnade.wire.offer import is_address as is_host_and_port


class NetworkPart(Part):
    """``[network]``: has a meaning in studies with ``links = "direct"`` alone."""

    listen: str | None = None
    advertise: str | None = None
    dial: bool = Field(default=True, strict=True)

    @field_validator("listen")
    @classmethod
    def _ports(cls, text: str | None) -> str | None:
        if text is not None:
            Ports.read(text)
        return text

    @field_validator("advertise")
    @classmethod
    def _dialled(cls, text: str | None) -> str | None:
        if text is not None and not (is_host_and_port(text) or is_host_and_port(f"{text}:1")):
            raise ValueError("must be host or host:port, such as bank.example.org or [2001:db8::5]:9400 [VA200]")
        return text

    @model_validator(mode="after")
    def _reachable(self) -> NetworkPart:
        if self.listen is None:
            if self.advertise is not None:
                raise ValueError("advertise has no meaning without listen [VA201]")
            return self
        ports = Ports.read(self.listen)
        if self.advertise is None and ports.everywhere:
            raise ValueError(
                f"listen = {self.listen!r} means every address, so advertise must say which peers dial [VA202]"
            )
        if self.advertise is not None and is_host_and_port(self.advertise) and ports.first != ports.last:
            raise ValueError("advertise must be a host without a port where listen has several ports [VA203]")
        return self

    @property
    def direct(self) -> Direct:
        """The same for the wire."""
        return Direct(self.listen, self.advertise, self.dial)


def recorded(ways: Mapping[str, Way], traffic: Mapping[str, Traffic]) -> dict[str, dict[str, Any]]:
    """What ``run.json`` says of the way to each peer: which it was, how many bytes went it, and why it was the hub."""
    return {
        peer: {
            "way": "hub" if not way.links else "both" if way.broken else "direct",
            "direct_sent": way.sent,
            "direct_received": way.received,
            "hub_sent": traffic[peer].sealed_sent - way.sent,
            "hub_received": traffic[peer].sealed_received - way.received,
            "connections": way.links,
            **({"why": way.why} if way.broken or not way.links else {}),
        }
        for peer, way in ways.items()
    }


def bytes_by_way(run: Mapping[str, Any]) -> tuple[int, int]:
    """How many sealed bytes a participant sent directly, and how many through the hub, by the record of its run."""
    direct = sum(_count(facts, "direct_sent") for facts in run.get("links", {}).values())
    return direct, max(sum(_count(facts, "sealed_sent") for facts in run.get("traffic", {}).values()) - direct, 0)


def _count(facts: Mapping[str, Any], key: str) -> int:
    found = facts.get(key, 0)
    return found if isinstance(found, int) and found > 0 else 0
