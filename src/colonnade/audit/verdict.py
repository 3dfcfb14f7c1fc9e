"""The outcome of a game: what was promised, what was shown, and whether that is good."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Any

from colonnade.audit.distinguish import AuditResult
from colonnade.audit.registry import Game
from colonnade.randomness import Stream

_FAR = 9.99


@dataclass(frozen=True)
class Verdict:
    """The outcome of one game."""

    game: Game
    result: AuditResult
    claimed: float

    @property
    def good(self) -> bool:
        """Whether the promise holds."""
        return not self.result.caught

    @property
    def word(self) -> str:
        """The verdict in one word, in capitals if it is not good."""
        return "holds" if self.good else "REFUTED"

    @property
    def label(self) -> str:
        """What the game is called where outcomes are listed."""
        return self.game.name

    @property
    def reach(self) -> str:
        """How much of the promise was shown, in percent; rounded so that only a refuted promise is at 100 or more."""
        share = self.result.reach
        if share >= _FAR:
            return f">{_FAR:.0%}"
        return f"{math.ceil(100 * share) if self.result.caught else math.floor(100 * share)}%"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; an infinite claim is ``null``."""
        return {
            "game": self.game.name,
            "observer": self.game.observer.label,
            "adjacency": self.game.trust.adjacency(self.game.observer).value,
            "story": self.game.story,
            "claimed_epsilon": self.claimed if math.isfinite(self.claimed) else None,
            "verdict": self.word,
            "good": self.good,
            **self.result.to_dict(),
        }


def judge(game: Game, samples: int, seed: int) -> Verdict:
    """Play a game with randomness of its own, so that its outcome does not depend on what else is played."""
    result = game.play(samples, game_stream(f"{seed} {game.name} "))
    return Verdict(game, result, game.epsilon(result.delta))


def game_stream(words: str) -> Stream:
    """The randomness of a game. Games are about made-up people, so others may know the seed."""
    return Stream(hashlib.sha256(f"colonnade audit {words}".encode()).digest())
