"""Every command that a page tells people to type exists as it is written."""

from __future__ import annotations

import shlex
from functools import cache
from typing import Any

import typer

from colonnade.cli.app import app
from tools.pages import blocks, named, pages

TYPED = ("sh", "bash", "text")


def typed(text: str) -> list[list[str]]:
    """The lines of a block that call Colonnade, as words; a line that ends with a backslash goes on."""
    lines = (line.strip().removeprefix("$ ") for line in text.replace("\\\n", " ").splitlines())
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("colonnade ")]


@cache
def _whole() -> Any:
    return typer.main.get_command(app)


def wrong(words: list[str]) -> str:
    """What is wrong with a command, if anything."""
    command: Any = _whole()
    context = command.context_class(command, info_name="colonnade")
    while hasattr(command, "get_command"):
        if (command := command.get_command(context, words[0])) is None:
            return "there is no such command"
        context = command.context_class(command, info_name=words[0], parent=context)
        words = words[1:]
    if words == ["..."]:
        return ""
    try:
        _, left, _ = command.make_parser(context).parse_args(list(words))
    except Exception as error:
        return str(error)
    return "more arguments than the command takes" if left else ""


def test_commands_exist_with_their_options() -> None:
    calls = [
        (named(page), words)
        for page in pages()
        for block in blocks(page)
        if block.language in TYPED
        for words in typed(block.text)
    ]
    assert len(calls) > 50
    found = {f"{page}: {' '.join(words)}": wrong(words) for page, words in calls}
    assert not any(found.values()), {call: what for call, what in found.items() if what}


def test_wrong_ones_are_noticed() -> None:
    assert all(map(wrong, (["dance"], ["run", "--dance"], ["demo", "one", "two"])))
