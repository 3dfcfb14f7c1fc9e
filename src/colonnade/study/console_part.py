"""``[agent.console]`` of a party file: where its console is served, and whom it believes."""

from __future__ import annotations

import ipaddress
import re
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from colonnade.study.keys import Part

Role = Literal["viewer", "approver"]
DEFAULT_ADDRESS = "127.0.0.1:8471"
_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?")


class ConsolePart(Part):
    """The console of an agent or of the hub; ``console = "ADDRESS:PORT"`` alone says where it is."""

    listen: str = DEFAULT_ADDRESS
    tls: bool = Field(default=False, strict=True)
    hosts: tuple[str, ...] = ()
    trust_header: str | None = Field(default=None, pattern=r"^[A-Za-z0-9-]{1,64}$")
    sources: tuple[str, ...] = Field(default=("127.0.0.1",), alias="from")

    @model_validator(mode="before")
    @classmethod
    def _address_alone(cls, given: Any) -> Any:
        return {"listen": given} if isinstance(given, str) else given

    @field_validator("listen")
    @classmethod
    def _address(cls, text: str) -> str:
        host, _, port = text.rpartition(":")
        try:
            ipaddress.ip_address(host.strip("[]"))
        except ValueError:
            raise ValueError('must be an address and a port, such as "127.0.0.1:8471" [VA186]') from None
        if not port.isdecimal() or int(port) > 65535:
            raise ValueError('must be an address and a port, such as "127.0.0.1:8471" [VA187]')
        return text

    @field_validator("hosts")
    @classmethod
    def _names(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        lower = tuple(host.lower() for host in hosts)
        if not all(_HOST.fullmatch(host) for host in lower):
            raise ValueError('must be names as a browser shows them, such as "console.example.org" [VA188]')
        return lower

    @field_validator("sources")
    @classmethod
    def _networks(cls, sources: tuple[str, ...]) -> tuple[str, ...]:
        for source in sources:
            try:
                ipaddress.ip_network(source)
            except ValueError:
                raise ValueError(
                    'must be addresses or networks, such as "127.0.0.1" or "10.0.0.0/24" [VA189]'
                ) from None
        return sources

    @model_validator(mode="after")
    def _reachable(self) -> ConsolePart:
        if not self.tls and not ipaddress.ip_address(self.address[0]).is_loopback:
            raise ValueError(
                "must listen on a loopback address, or behind a proxy with TLS: say tls = true, and the "
                "names in hosts [VA190]"
            )
        if self.tls and not self.hosts:
            raise ValueError(
                'must name in hosts what people type, such as "console.example.org", where tls = true [VA191]'
            )
        return self

    @property
    def address(self) -> tuple[str, int]:
        """Host and port to listen on."""
        host, _, port = self.listen.rpartition(":")
        return host.strip("[]"), int(port)

    def names(self, port: int) -> tuple[str, ...]:
        """What a browser may say as the Host, for the port that is listened on."""
        own = () if self.tls else (f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}")
        return (*own, *self.hosts)
