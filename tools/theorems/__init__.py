"""From theorem to code: every charged event and every printed epsilon, with its theorem, function, test and game.

``python -m tools.theorems --write`` writes the tables into ``docs/theory/README.md``; ``make lint`` checks every link.
Events, games and places come from the code (``found``); ``charged`` and ``figures`` hold what nobody can derive: on
which page a bound is proven, which function computes it and which test checks it.
"""
