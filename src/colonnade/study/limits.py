"""``[limits]``: how long a study waits, and how much of one participant another one keeps."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from colonnade.study.keys import Part
from colonnade.wire.values import MAX_FRAME
from colonnade.wire.watch import Limits

_YEAR = 366 * 24 * 3600.0
_HOUR = 3600.0
_MIB = 1 << 20
_MESSAGE = MAX_FRAME // _MIB
_BESIDE = 4
"""MiB for what a message of the largest size takes besides: seals, headers, and packets that do not fill the room."""
_ALWAYS_AGREED = ("join", "reconnect", "silence")
"""Part of every study's digest; the others are only where they are not the default, as in studies that name none."""


class LimitsPart(Part):
    """``[limits]``: seconds to wait; ``window`` and ``backlog`` are in MiB."""

    join: float = Field(default=120.0, gt=0, le=_YEAR)
    reconnect: float = Field(default=Limits.reconnect_grace, gt=0, le=_YEAR)
    silence: float = Field(default=Limits.timeout, gt=0, le=_YEAR)
    attempt: float = Field(default=Limits.attempt, ge=0.1, le=_HOUR)
    handshake: float = Field(default=Limits.handshake, ge=0.1, le=_HOUR)
    heartbeat: float = Field(default=Limits.heartbeat, ge=0.1, le=_HOUR)
    stall: float = Field(default=Limits.stall, ge=0.1, le=_HOUR)
    excuse: float = Field(default=5.0, ge=0.1, le=_HOUR)
    closing: float = Field(default=Limits.closing, ge=0.1, le=_HOUR)
    window: int = Field(default=Limits.window // _MIB, ge=1, le=1024)
    backlog: int = Field(default=Limits.backlog // _MIB, ge=_MESSAGE + _BESIDE, le=8192)

    @model_validator(mode="after")
    def _room_to_grant(self) -> LimitsPart:
        if self.backlog < self.window + _MESSAGE:
            raise ValueError(
                f"backlog = {self.backlog} is too small for window = {self.window}: it must be larger by at least "
                f"{_MESSAGE}, the longest message, so that two who send one to each other at the same "
                "time can go on [VA199]"
            )
        return self

    @property
    def agreed(self) -> dict[str, Any]:
        """What of it is part of the digest of a study."""
        said = self.model_dump(mode="json")
        defaults = {name: field.default for name, field in type(self).model_fields.items()}
        return {key: value for key, value in said.items() if key in _ALWAYS_AGREED or value != defaults[key]}

    def of_participant(self, join: float | None = None) -> dict[str, Any]:
        """The settings of ``dial``; ``join`` is how long to go on trying, if not as long as the study says."""
        return {
            "connect_timeout": self.join if join is None else join,
            "reconnect_grace": self.reconnect,
            "timeout": self.silence,
            "attempt": self.attempt,
            "heartbeat": self.heartbeat,
            "closing": self.closing,
            "window": self.window * _MIB,
            "backlog": self.backlog * _MIB,
        }

    @property
    def of_hub(self) -> dict[str, Any]:
        """The settings of the hub."""
        return {
            "heartbeat": self.heartbeat,
            "handshake": self.handshake,
            "stall": self.stall,
            "closing": self.closing,
        }
