"""Participants on a stage play in turn, and nobody waits for a clock."""

from __future__ import annotations

import pytest

from colonnade.audit.cheats.stage import Stage, StagePlace
from colonnade.errors import PeerLost, PeerStopped
from colonnade.received import Message, Whole, received

NUMBER = Message("number", value=Whole(0, 100))


def ask(place: StagePlace, peer: str) -> int:
    found: int = received(place.channel(peer), peer, NUMBER)["value"]
    return found


def test_whoever_is_named_last_sees_what_the_others_sent_before_it_sends() -> None:
    heard: list[int] = []

    def first(place: StagePlace) -> int:
        place.channel("last").send("number", value=7)
        return ask(place, "last")

    def last(place: StagePlace) -> None:
        heard.append(ask(place, "first"))
        place.channel("first").send("number", value=heard[0] + 1)

    assert Stage(["first", "last"]).run({"first": first, "last": last})["first"] == 8


def test_a_participant_that_says_nothing_is_given_up_when_all_others_wait() -> None:
    def waits(place: StagePlace) -> int:
        return ask(place, "mute")

    ended = Stage(["a", "mute"]).run({"a": waits, "mute": lambda place: ask(place, "a")})
    assert isinstance(ended["a"], PeerLost)
    assert str(ended["a"]).startswith("mute sent nothing")


def test_what_stops_one_stops_all_but_a_cheater_leaves_without_a_word() -> None:
    def stops(place: StagePlace) -> None:
        place.abort("it has enough")

    ended = Stage(["a", "b"]).run({"a": lambda place: ask(place, "b"), "b": stops})
    assert isinstance(ended["a"], PeerStopped)

    def silently(place: StagePlace) -> None:
        place.silent = True
        place.abort("it has enough")

    ended = Stage(["a", "b"]).run({"a": lambda place: ask(place, "b"), "b": silently})
    assert isinstance(ended["a"], PeerLost)


@pytest.mark.parametrize("value", [3, 101])
def test_messages_come_in_through_the_same_door_as_between_machines(value: int) -> None:
    def tells(place: StagePlace) -> None:
        place.channel("a").send("number", value=value)

    found = Stage(["a", "b"]).run({"a": lambda place: ask(place, "b"), "b": tells})["a"]
    assert found == 3 if value == 3 else "number" in str(found)
