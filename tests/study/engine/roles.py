"""What workers do in these tests."""

from __future__ import annotations

import os
import sys
import time

import numpy as np

from colonnade.errors import DataError
from colonnade.randomness import Stream


class Unreadable:
    """Can be sent, and not be made again."""

    def __reduce__(self):
        return int, ("a person of 77 years",)


def counter(line, start=0):
    """Keep a number, which commands change."""
    total = start
    while True:
        word, *values = line.receive()
        if callable(word):
            line.say(word(*values))
        elif word == "add":
            total += sum(values)
            line.say(total)
        elif word == "pid":
            line.say(os.getpid())
        elif word == "host":
            line.say(line.host)
        elif word == "coins":
            line.say(Stream.fresh().bytes(16))
        elif word == "say":
            for value in range(values[0]):
                line.say(value)
        else:
            _deed(line, word, values)


def _deed(line, word, values):
    if word == "print":
        sys.stdout.write("4711\n")
        sys.stderr.write("4711\n")
        line.say("printed")
    elif word == "raise ours":
        raise DataError("the table has no rows")
    elif word == "busy":
        line.say("busy")
        while True:
            np.ones(10**6).sum()
    elif word == "eat":
        held = [np.ones(values[0], dtype=np.uint8)]
        line.say("eaten")
        while held:
            time.sleep(0.05)
    elif word == "patience":
        try:
            line.receive(0.05)
        except TimeoutError:
            line.say("nothing came")


def brief(line):
    line.say("done")
