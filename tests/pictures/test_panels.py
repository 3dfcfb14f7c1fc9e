"""Panels on axes: what is drawn is what was given, nothing of pyplot is touched, and names are shown as they are."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime

import pytest
from matplotlib import rc_context
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from colonnade.errors import StudyError
from colonnade.pictures.bars import Bar, Bars
from colonnade.pictures.canvas import drawn
from colonnade.pictures.cells import Cell, Cells
from colonnade.pictures.columns import Columns
from colonnade.pictures.lines import Line, Lines
from colonnade.pictures.look import DARK, LIGHT, Sheet
from tests.support.errors import refused

from .reading import colour, intervals, lengths, notes, written

BARS = Bars(
    "A title",
    [
        Bar("clear", 2.0, "+2.00", "signed", 1.0, 3.0, group="bank"),
        Bar("below", -1.0, "-1.00", "signed", -1.5, -0.5, group="bank"),
        Bar("unsure", 0.5, "+0.50", "grey", -0.5, 1.5, group="shop"),
        Bar("costs $5 and $6", 1.0, "1.0", limit=2.5, group="shop"),
        Bar("untold", 0.0, "no promise", "open", group="shop"),
        Bar("as said", 1.5, "1.5", "doubtful", group="shop"),
    ],
    "a scale",
    "a note",
)
LINES = Lines("Over time", [Line("analyst", [0.0, 1.0], [0.5, 0.7]), Line("b", [0.0, 1.0], [0.1, 0.2])], "x", "y")


def test_bars_have_the_given_lengths_intervals_colours_and_caps() -> None:
    (ax,) = drawn(Sheet([BARS])).axes
    found = lengths(ax)
    assert [found[name] for name in ("clear", "below", "unsure", "untold")] == [2.0, -1.0, 0.5, 3.0], "the longest"
    assert intervals(ax) == {"clear": (1.0, 3.0), "below": (-1.5, -0.5), "unsure": (-0.5, 1.5)}
    colours = [colour(ax, name) for name in ("clear", "below", "unsure")]
    assert colours == [LIGHT.positive, LIGHT.negative, LIGHT.grey]
    assert sum(bool(patch.get_hatch()) for patch in ax.patches) == 2, "the open bar and the doubtful one"
    assert [line.get_xdata()[0] for line in ax.lines if line.get_linestyle() == "--"] == [2.5]
    assert 2.5 in [patch.get_width() for patch in ax.patches]
    assert {"bank", "shop", "+2.00", "no promise"} <= set(written(ax))
    assert (ax.get_title(loc="left"), notes(ax)) == ("A title", "a scale a note")


def test_a_dollar_is_a_dollar_and_control_codes_are_not_shown() -> None:
    figure = drawn(Sheet([Bars("a $x_1$ \x1b[1m", [Bar("$y^2$", 1.0, "$1$", group="$g$")], "$z$", "$note$")]))
    figure.draw_without_rendering()
    (ax,) = figure.axes
    texts = [ax.title, ax._left_title, *ax.texts, *ax.get_yticklabels(), ax.xaxis.label]
    shown = dict(text._preprocess_math(text.get_text()) for text in texts if text.get_text())
    assert {"$y^2$", "$1$", "$g$", "$z$\n$note$"} <= set(shown)
    assert not any(math or "\x1b" in text for text, math in shown.items())


def test_cells_are_grey_where_they_are_unclear_and_stronger_where_they_are_large() -> None:
    rows = [
        ("bank.age", [Cell(0.8, "+0.80"), Cell(-0.4, "-0.40")]),
        ("shop.x", [Cell(0.1, "+0.10", True), Cell(0, "0")]),
    ]
    (ax,) = drawn(Sheet([Cells("Cells", ["one", "two"], rows)])).axes
    first, second, third, _ = (patch.get_facecolor() for patch in ax.patches)
    assert first[3] == pytest.approx(2 * second[3])
    assert (first[2] > first[0], second[0] > second[2]) == (True, True), "blue and orange"
    assert to_hex(third) == LIGHT.grey
    assert written(ax) == ["+0.80", "-0.40", "+0.10", "0"]


def test_columns_show_shares_what_was_measured_and_borders_between_bars() -> None:
    panel = Columns("bank.age", ["a", "b"], [0.4, 0.6], [(0.38, 0.3, 0.45), (-0.01, 0.0, 0.02)])
    bins = Columns("n", list("abcdefgh"), [0.1] * 8, borders=[str(k) for k in range(9)])
    ax, other = drawn(Sheet([panel, bins])).axes
    assert [patch.get_height() for patch in ax.patches] == [0.4, 0.6]
    assert [tuple(line.get_ydata()) for line in ax.lines] == [(0.3, 0.45), (0.38,), (0.0, 0.02), (-0.01,)]
    assert ax.get_ylim()[0] == -0.01, "a noisy share may lie below zero, and is seen"
    ticks = dict(zip([label.get_text() for label in other.get_xticklabels()], other.get_xticks().tolist(), strict=True))
    assert ticks == {"0": -0.5, "2": 1.5, "4": 3.5, "6": 5.5, "8": 7.5}


def test_lines_hold_their_points_limits_and_dates() -> None:
    when = [datetime(2026, month, 1, tzinfo=UTC) for month in (1, 5, 12)]
    panel = Lines("t", [Line("a", when, [0.0, 1.0, 2.0], steps=True)], "x", "y", {"cap of a: 3": 3.0})
    figure = drawn(Sheet([panel]))
    figure.draw_without_rendering()
    (ax,) = figure.axes
    line, limit = ax.lines
    assert (list(line.get_ydata()), line.get_drawstyle()) == ([0.0, 1.0, 2.0], "steps-post")
    assert set(limit.get_ydata()) == {3.0}
    assert "cap of a: 3" in written(ax)
    assert "Jul" in [label.get_text() for label in ax.get_xticklabels()]


def test_a_picture_on_given_axes_belongs_to_their_figure() -> None:
    whole = Figure(layout="constrained")
    left, right = whole.subplots(1, 2)
    assert drawn(Sheet([BARS]), left) is drawn(Sheet([BARS, LINES]), right) is whole
    assert lengths(left)["clear"] == 2.0
    assert (right.axison, len(whole.axes)) == (False, 4)
    frames = [ax.get_subplotspec().get_topmost_subplotspec() for ax in whole.axes[2:]]
    assert frames == [right.get_subplotspec()] * 2
    whole.draw_without_rendering()


def test_axes_outside_of_a_grid_hold_one_panel_and_what_is_no_axes_is_refused() -> None:
    ax = Figure().add_axes((0.2, 0.2, 0.6, 0.6))
    assert lengths(drawn(Sheet([BARS]), ax).axes[0])["clear"] == 2.0
    refused(StudyError, "ST406", drawn, Sheet([BARS, LINES]), ax)
    for given in (3, "ax", Figure()):
        refused(StudyError, "ST405", drawn, Sheet([BARS]), given)


def test_colours_follow_a_dark_style() -> None:
    with rc_context({"text.color": "white", "figure.facecolor": "black", "axes.facecolor": "black"}):
        (ax,) = drawn(Sheet([BARS])).axes
    assert colour(ax, "clear") == DARK.positive
    assert ax.get_yticklabels()[0].get_color() == DARK.ink


@pytest.mark.system
def test_a_notebook_shows_a_picture_without_pyplot() -> None:
    program = (
        "import sys\n"
        "from colonnade.pictures.canvas import drawn\n"
        "from colonnade.pictures.bars import Bar, Bars\n"
        "from colonnade.pictures.look import Sheet\n"
        "shown = drawn(Sheet([Bars('t', [Bar('a', 1.0, '1')], 'x')]))._repr_png_()\n"
        "assert shown[:8] == b'\\x89PNG\\r\\n\\x1a\\n' and len(shown) > 1000\n"
        "sys.exit('matplotlib.pyplot' in sys.modules)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr


def test_numbers_that_are_not_finite_leave_the_others_as_they_are_and_nothing_to_draw_is_an_empty_panel() -> None:
    nan, inf = float("nan"), float("inf")
    bars = Bars("b", [Bar("lost", nan, "none", "grey", -inf, inf), Bar("there", 2.0, "2.0")], "x")
    cells = Cells("c", ["one"], [("a", [Cell(nan, "none")]), ("b", [Cell(0.5, "+0.50")])])
    empty = [Bars("b", [], "x"), Cells("c", [], []), Columns("d", [], []), Lines("e", [], "x", "y")]
    figure = drawn(Sheet([bars, cells, *empty], 2))
    figure.draw_without_rendering()
    assert len(figure.axes) == 6
    assert lengths(figure.axes[0])["there"] == 2.0
    assert [patch.get_facecolor()[3] for patch in figure.axes[1].patches] == [0.0, 0.75]
