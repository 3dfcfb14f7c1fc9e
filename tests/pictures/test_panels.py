"""Panels on axes: what is drawn is what was given, nothing of pyplot is touched, and names are shown as they are."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime

import pytest
from matplotlib import rc_context
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


def test_bars_have_the_given_lengths_intervals_and_colours() -> None:
    figure = drawn(Sheet([BARS]))
    (ax,) = figure.axes
    found = lengths(ax)
    assert found["clear"] == 2.0
    assert found["below"] == -1.0
    assert found["unsure"] == 0.5
    assert intervals(ax) == {"clear": (1.0, 3.0), "below": (-1.5, -0.5), "unsure": (-0.5, 1.5)}
    assert colour(ax, "clear") == LIGHT.positive
    assert colour(ax, "below") == LIGHT.negative
    assert colour(ax, "unsure") == LIGHT.grey
    assert found["untold"] == 3.0, "as long as the longest"
    hatched = [patch for patch in ax.patches if patch.get_hatch()]
    assert len(hatched) == 2, "the open bar and the doubtful one"
    assert {"bank", "shop", "+2.00", "no promise"} <= set(written(ax))
    assert ax.get_title(loc="left") == "A title"
    assert notes(ax) == "a scale a note"


def test_a_cap_is_drawn_behind_its_bar() -> None:
    (ax,) = drawn(Sheet([BARS])).axes
    assert [line.get_xdata()[0] for line in ax.lines if line.get_linestyle() == "--"] == [2.5]
    assert 2.5 in [patch.get_width() for patch in ax.patches]


def test_a_dollar_is_a_dollar_and_control_codes_are_not_shown() -> None:
    figure = drawn(Sheet([Bars("a $x_1$ \x1b[1m", [Bar("$y^2$", 1.0, "$1$", group="$g$")], "$z$", "$note$")]))
    figure.draw_without_rendering()
    (ax,) = figure.axes
    texts = [ax.title, ax._left_title, *ax.texts, *ax.get_yticklabels(), ax.xaxis.label]
    shown = [text._preprocess_math(text.get_text()) for text in texts if text.get_text()]
    assert not any(math for _, math in shown)
    assert {"$y^2$", "$1$", "$g$", "$z$\n$note$"} <= {text for text, _ in shown}
    assert not any("\x1b" in text for text, _ in shown)


def test_cells_are_grey_where_they_are_unclear_and_stronger_where_they_are_large() -> None:
    rows = [
        ("bank.age", [Cell(0.8, "+0.80"), Cell(-0.4, "-0.40")]),
        ("shop.x", [Cell(0.1, "+0.10", True), Cell(0, "0")]),
    ]
    (ax,) = drawn(Sheet([Cells("Cells", ["one", "two"], rows)])).axes
    first, second, third, _ = (patch.get_facecolor() for patch in ax.patches)
    assert first[3] == pytest.approx(2 * second[3])
    assert first[2] > first[0], "blue"
    assert second[0] > second[2], "orange"
    assert third[:3] == pytest.approx([int(LIGHT.grey[k : k + 2], 16) / 255 for k in (1, 3, 5)])
    assert written(ax) == ["+0.80", "-0.40", "+0.10", "0"]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["one", "two"]


def test_columns_show_shares_and_what_was_measured() -> None:
    panel = Columns("bank.age", ["a", "b"], [0.4, 0.6], [(0.38, 0.3, 0.45), (-0.01, 0.0, 0.02)])
    (ax,) = drawn(Sheet([panel])).axes
    assert [patch.get_height() for patch in ax.patches] == [0.4, 0.6]
    spans = [tuple(line.get_ydata()) for line in ax.lines]
    assert spans == [(0.3, 0.45), (0.38,), (0.0, 0.02), (-0.01,)]
    assert ax.get_ylim()[0] == -0.01, "a noisy share may lie below zero, and is seen"


def test_borders_of_bins_stand_between_bars() -> None:
    panel = Columns("n", list("abcdefgh"), [0.1] * 8, borders=[str(k) for k in range(9)])
    (ax,) = drawn(Sheet([panel])).axes
    ticks = dict(zip([label.get_text() for label in ax.get_xticklabels()], ax.get_xticks().tolist(), strict=True))
    assert ticks == {"0": -0.5, "2": 1.5, "4": 3.5, "6": 5.5, "8": 7.5}


def test_long_labels_are_cut_and_turned() -> None:
    (ax,) = drawn(Sheet([Columns("c", ["a very long name of a category", "another"], [0.5, 0.5])])).axes
    assert all(len(label.get_text()) <= 14 for label in ax.get_xticklabels())
    (ax,) = drawn(Sheet([Bars("b", [Bar("word " * 40, 1.0, "1")], "")])).axes
    (name,) = [label.get_text() for label in ax.get_yticklabels()]
    assert name.count("\n") == 1
    assert name.endswith("...")


def test_lines_hold_their_points_limits_and_dates() -> None:
    when = [datetime(2026, month, 1, tzinfo=UTC) for month in (1, 5, 12)]
    panel = Lines("t", [Line("a", when, [0.0, 1.0, 2.0], steps=True)], "x", "y", {"cap of a: 3": 3.0})
    figure = drawn(Sheet([panel]))
    figure.draw_without_rendering()
    (ax,) = figure.axes
    drawn_line, limit = ax.lines
    assert list(drawn_line.get_ydata()) == [0.0, 1.0, 2.0]
    assert drawn_line.get_drawstyle() == "steps-post"
    assert set(limit.get_ydata()) == {3.0}
    assert "cap of a: 3" in written(ax)
    assert "Jul" in [label.get_text() for label in ax.get_xticklabels()]


def test_a_picture_on_given_axes_belongs_to_their_figure() -> None:
    whole = Figure(layout="constrained")
    left, right = whole.subplots(1, 2)
    assert drawn(Sheet([BARS]), left) is whole
    assert lengths(left)["clear"] == 2.0
    assert drawn(Sheet([BARS, LINES]), right) is whole
    assert not right.axison
    assert len(whole.axes) == 4
    bounds, frame = [ax.get_subplotspec() for ax in whole.axes[2:]], right.get_subplotspec()
    assert all(each.get_topmost_subplotspec() == frame for each in bounds)
    whole.draw_without_rendering()


@pytest.mark.parametrize("given", [3, "ax", Figure()])
def test_what_is_no_axes_is_refused(given: object) -> None:
    refused(StudyError, "ST405", drawn, Sheet([BARS]), given)


def test_axes_outside_of_a_grid_hold_one_panel() -> None:
    ax = Figure().add_axes((0.2, 0.2, 0.6, 0.6))
    assert lengths(drawn(Sheet([BARS]), ax).axes[0])["clear"] == 2.0
    refused(StudyError, "ST406", drawn, Sheet([BARS, LINES]), ax)


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


def test_nothing_to_draw_is_an_empty_panel() -> None:
    """A panel without bars, cells or lines is drawn all the same."""
    empty = [Bars("b", [], "x"), Cells("c", [], []), Columns("d", [], []), Lines("e", [], "x", "y")]
    figure = drawn(Sheet(empty, 2))
    figure.draw_without_rendering()
    assert len(figure.axes) == 4


def test_numbers_that_are_not_finite_leave_the_others_as_they_are() -> None:
    nan, inf = float("nan"), float("inf")
    bars = Bars("b", [Bar("lost", nan, "none", "grey", -inf, inf), Bar("there", 2.0, "2.0")], "x")
    cells = Cells("c", ["one"], [("a", [Cell(nan, "none")]), ("b", [Cell(0.5, "+0.50")])])
    figure = drawn(Sheet([bars, cells]))
    figure.draw_without_rendering()
    assert lengths(figure.axes[0])["there"] == 2.0
    assert [patch.get_facecolor()[3] for patch in figure.axes[1].patches] == [0.0, 0.75]
