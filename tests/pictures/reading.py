"""Reads a drawn panel back: the lengths of bars, the ends of intervals, colours and texts, by label."""

from __future__ import annotations

from matplotlib.colors import to_hex


def places(ax) -> dict[float, str]:
    """The labels of bars, by the height at which they stand."""
    return {float(at): label.get_text() for at, label in zip(ax.get_yticks(), ax.get_yticklabels(), strict=True)}


def _bars(ax):
    """Each bar by its label; the last one drawn at a height is the bar itself."""
    names = places(ax)
    return {names[float(round(patch.get_y() + patch.get_height() / 2))]: patch for patch in ax.patches}


def lengths(ax) -> dict[str, float]:
    """How long each bar is."""
    return {name: bar.get_width() for name, bar in _bars(ax).items()}


def colour(ax, name: str) -> str:
    """The colour of a bar."""
    return to_hex(_bars(ax)[name].get_facecolor())


def intervals(ax) -> dict[str, tuple[float, float]]:
    """The ends of intervals, which are lines along a bar."""
    names = places(ax)
    level = [line for line in ax.lines if line.get_marker() == "|"]
    return {names[float(line.get_ydata()[0])]: tuple(map(float, line.get_xdata())) for line in level}


def written(ax) -> list[str]:
    """The texts in a panel, besides its title and its axes."""
    return [text.get_text() for text in ax.texts]


def notes(ax) -> str:
    """What stands below a panel, in one line."""
    return str(ax.get_xlabel()).replace("\n", " ")
