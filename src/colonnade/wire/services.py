"""Questions to the hub that are answered at once, beside the circles: bytes in, bytes out, from somebody it knows."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

from colonnade.errors import ColonnadeError, IdentityError
from colonnade.lazy import Later
from colonnade.wire.quota import Memory, Refusal

grpc: Any = Later("grpc")

STOP_SECONDS = 1.0
MOST_STREAMS = 8  # of one connection; a participant needs one
PIECE = 1 << 20
"""Questions and answers travel in pieces, so that a long one needs no larger messages than the circles."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Service:
    """One method that members may call; ``answer`` runs in the hub's loop, so it must not block."""

    name: str
    method: str
    answer: Callable[[str, bytes], Awaitable[bytes]]
    """From the caller's proven name and its question to the answer; a ``ColonnadeError`` is told to the caller."""
    most: int = 1 << 22
    """The longest question, in bytes."""


def pieces(body: bytes) -> Iterator[bytes]:
    """The body in pieces that are sent one by one; an empty body is one empty piece."""
    for start in range(0, max(len(body), 1), PIECE):
        yield body[start : start + PIECE]


async def question(messages: AsyncIterator[bytes], most: int, stall: float, memory: Memory) -> bytes:
    """All pieces of a question; an error if it is too long, or does not come."""
    parts: list[bytes] = []
    source = aiter(messages)
    while True:
        try:
            # Not wait_for: the end of the question would be kept by its task, in a circle with the frames it came
            # through, and with them all that the question had, until Python looks for circles.
            async with asyncio.timeout(stall):
                part = await anext(source)
        except StopAsyncIteration:
            return b"".join(parts)
        except TimeoutError:
            raise Refusal(f"nothing more of the question came for {stall:g} s [CN043]", "ABORTED") from None
        if memory.size + len(part) > most:
            raise Refusal(f"a question of this kind has at most {most} bytes [CN044]", "INVALID_ARGUMENT")
        await memory.add(len(part))
        parts.append(part)


async def answered(service: Service, caller: str, asked: bytes, context: Any) -> bytes:
    """The answer; a sentence to the caller if there is none."""
    try:
        return await service.answer(caller, asked)
    except IdentityError as refusal:
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(refusal))
    except ColonnadeError as refusal:
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(refusal))
    except Exception:
        _log.exception("a question to %s/%s could not be answered", service.name, service.method)
        await context.abort(grpc.StatusCode.INTERNAL, "the hub failed to answer; its own log says why")
    raise AssertionError("abort always raises")


async def reply(answer: bytes, context: Any, stall: float, memory: Memory) -> None:
    """Send an answer, unless the caller stops reading."""
    memory.hold(len(answer))
    for piece in pieces(answer):
        await memory.pay(len(piece))
        try:
            async with asyncio.timeout(stall):
                await context.write(piece)
        except TimeoutError:
            raise Refusal("it did not read its answer [CN045]", "ABORTED") from None
