"""Charts: what is drawn is what was given, text has room, and a picture is one complete file."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import numpy as np
import pytest

from colonnade.drawing.canvas import COLOURS, NARROW, WIDE, Chart, Picture, apart, extent, figure, shorten, ticks, wrap
from colonnade.drawing.charts import (
    Axis,
    Bar,
    BarChart,
    Curve,
    HeatMap,
    HeatMapCell,
    HeatMapRow,
    Histogram,
    HistogramChart,
    LineChart,
    Matrix,
    MatrixChart,
    PixelChart,
)
from tests.support.charts import shapes, written

BARS = BarChart(
    [
        Bar("clear", 2.0, "+2.00", "signed", 1.0, 3.0, group="bank"),
        Bar("below", -1.0, "-1.00", "signed", -1.5, -0.5, group="bank"),
        Bar("unsure", 0.5, "+0.50", "grey", -0.5, 1.5, group="shop"),
        Bar("costs <5>", 1.0, "1.0", limit=2.5, group="shop"),
        Bar("untold", None, "no promise", group="shop"),
        Bar("as said", 1.5, "1.5", "doubtful", group="shop"),
    ],
    "a scale",
    title="A title",
    note="A note.",
)
WHEN = [datetime(2026, month, 1, tzinfo=UTC).timestamp() for month in (1, 5, 12)]
LINES = LineChart(
    [Curve("analyst", list(zip(WHEN, [0.0, 1.0, 2.0], strict=True)), steps=True), Curve("bank", [(WHEN[0], 0.5)])],
    Axis("when", "time"),
    Axis("epsilon"),
    {"cap of a: 3": 3.0},
    title="Over time",
)
CELLS = HeatMap(
    ["one", "two"],
    [
        HeatMapRow("age", [HeatMapCell(0.8, "+0.80 ± 0.01"), HeatMapCell(-0.4, "-0.40 ± 0.01")], "bank"),
        HeatMapRow("x", [HeatMapCell(0.1, "+0.10 ± 0.20", grey=True), HeatMapCell(0, "0")], "shop"),
    ],
    title="Cells",
)
HISTOGRAMS = HistogramChart(
    [
        Histogram("bank.age", ["a", "b"], [0.4, 0.6], [(0.38, 0.3, 0.45), (-0.01, 0.0, 0.02)]),
        Histogram("n", list("abcdefgh"), [0.1] * 8, borders=[str(k) for k in range(9)]),
        Histogram("ends", list("abc"), [1.0, 2.0, 3.0], borders=("first", "last")),
    ],
    "{:.0%}".format,
    title="Shares",
)
MATRICES = MatrixChart([Matrix("real", [[1.0, -0.5], [-0.5, 1.0]], 1.0)], ["a", "b"], title="Pairs")
PIXELS = PixelChart([("true", [np.eye(4)]), ("found", [np.zeros((4, 4, 3))])], 0.0, 1.0, title="Pictures")
ALL = (BARS, LINES, CELLS, HISTOGRAMS, MATRICES, PIXELS)


def bars_of(chart: Chart, look: str) -> list[float]:
    return [float(each["width"]) for each in shapes(chart.draw("k", WIDE), "rect") if each.get("class") == look]


def test_bars_have_the_given_lengths_intervals_colours_and_caps() -> None:
    (two,), (one,), (half,) = bars_of(BARS, "pos"), bars_of(BARS, "neg"), bars_of(BARS, "f7")
    assert (one / two, half / two) == (pytest.approx(0.5, rel=0.01), pytest.approx(0.25, rel=0.01))
    drawn = BARS.draw("k", WIDE)
    hatched = [float(each["width"]) for each in shapes(drawn, "rect") if "hatch" in each.get("fill", "")]
    assert hatched == [pytest.approx(4.5 / 2 * two, rel=0.01), pytest.approx(0.75 * two, rel=0.01)], "from end to end"
    level = [(float(each["x1"]), float(each["x2"])) for each in shapes(drawn, "line") if each["class"] == "error"]
    spans = [right - left for left, right in level if right > left]
    assert [span / two for span in spans] == [pytest.approx(size, rel=0.01) for size in (1.0, 0.5, 1.0)]
    assert sum(each["class"] == "edge" for each in shapes(drawn, "line")) == 1, "the cap"
    assert {"bank", "shop", "+2.00", "no promise", "costs <5>", "a scale"} <= set(written(BARS))


def test_bars_are_made_of_pieces_and_stand_before_what_noise_alone_would_show() -> None:
    pieces = BarChart([Bar("bank", 3.0, "3 s", pieces=[(0, "sums", 1.0), (7, "rest", 2.0)])], title="Seconds")
    (first,), (second,) = bars_of(pieces, "f0"), bars_of(pieces, "f7")
    assert second == pytest.approx(2 * first, rel=0.02)
    banded = BarChart([Bar("one", 4.0, "40 %")], band=(2.0, "shaded: noise"), title="Variance")
    assert bars_of(banded, "band") == [pytest.approx(bars_of(banded, "f0")[0] / 2, rel=0.01)]
    assert "shaded: noise" in written(banded)


def test_cells_are_grey_where_they_are_unclear_and_stronger_where_they_are_large() -> None:
    drawn = shapes(CELLS.draw("k", WIDE), "rect")
    strength = {each["class"]: float(each["fill-opacity"]) for each in drawn if each["class"] in ("pos", "neg")}
    assert strength["pos"] == pytest.approx(0.6)
    assert len([each for each in drawn if each["class"] == "pos"]) == 1, "the grey one has no colour"
    assert "+0.80 ± 0.01" in written(CELLS)
    crowded = HeatMap(
        [f"class {k}" for k in range(6)], [HeatMapRow("x", [HeatMapCell(1.0, "+1.00 ± 0.10")] * 6)], title="Many"
    )
    assert {"+1.00"} < set(written(crowded, NARROW)), "on a phone without the deviation"
    assert CELLS.describe() == "bank, age: +0.80 ± 0.01, -0.40 ± 0.01; shop, x: +0.10 ± 0.20 (not told from zero), 0"


def test_lines_hold_their_points_steps_levels_and_dates() -> None:
    drawn = LINES.draw("k", WIDE)
    stairs = next(each for each in shapes(drawn, "polyline") if each["class"] == "s0" and each["points"].count(",") > 2)
    points = [tuple(map(float, point.split(","))) for point in stairs["points"].split()]
    assert len(points) == 5
    heights = [y for _, y in points]
    assert heights[0] == heights[1] > heights[2] == heights[3] > heights[4]
    assert {"2026-01-01", "2026-12-01", "analyst", "bank", "cap of a: 3", "when", "epsilon"} <= set(written(LINES))
    assert sum(each["class"] == "ceiling" for each in shapes(drawn, "line")) == 2, "the level, and its name"


def test_logarithmic_axes_show_decades_or_the_given_places() -> None:
    rates = Curve("attack", [(0.0, 0.0), (1e-3, 0.1), (1.0, 1.0)])
    chart = LineChart(
        [rates], Axis("x", "log", ends=(1e-3, 1.0)), Axis("y", "log", ends=(1e-3, 1.0)), square=True, title="t"
    )
    assert {"0.001", "0.01", "0.1", "1"} <= set(written(chart))
    given = Curve("ours", [(0.1, 0.5), (0.3, 0.6), (10, 0.9)], [0.1, None, 0.1], marked=True)
    chart = LineChart([given], Axis("epsilon", "log"), Axis("accuracy"), diagonal="", title="t")
    assert {"0.1", "0.3", "10"} <= set(written(chart))
    assert len(shapes(chart.draw("k", WIDE), "polygon")) == 1, "a band of one deviation"


def test_histograms_show_what_was_measured_and_borders_between_bars() -> None:
    drawn = HISTOGRAMS.draw("k", WIDE)
    heights = [float(each["height"]) for each in shapes(drawn, "rect")]
    assert heights[1] / heights[0] == pytest.approx(1.5)
    assert sum(each["class"] == "s1" for each in shapes(drawn, "line")) == 4, "two intervals, each with its middle"
    assert {"0", "8", "4", "first", "last", "up to 60%"} <= set(written(HISTOGRAMS))


@pytest.mark.parametrize("chart", ALL, ids=lambda chart: type(chart).__name__)
@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_texts_stay_inside_and_do_not_run_into_each_other(chart: Chart, width: int) -> None:
    drawn = chart.draw("k", width)
    (whole,) = shapes(drawn, "svg")
    tall = float(whole["viewBox"].split()[3])
    placed = []
    for attributes, text in zip(shapes(drawn, "text"), written(chart, width), strict=True):
        wide, x, y = 0.9 * extent(text), float(attributes["x"]), float(attributes["y"])
        look = attributes.get("class", "").split()
        left = x - wide if "end" in look else x - wide / 2 if "mid" in look else x
        assert left >= -8, text
        assert left + wide <= width + 8, text
        assert 0 < y <= tall, text
        placed.append((left, left + wide, y, text))
    for k, (left, right, y, text) in enumerate(placed):
        for other_left, other_right, other_y, other in placed[:k]:
            assert abs(y - other_y) >= 9 or right <= other_left + 1 or other_right <= left + 1, (text, other)


def test_a_figure_is_drawn_for_a_page_and_for_a_phone_and_has_its_note_below() -> None:
    page = figure("key", BARS)
    assert (page.count("<svg"), page.count("A note.")) == (2, 1)
    assert "instead" in figure("key", BARS, "instead")
    assert "<figcaption" not in figure("key", LINES)


def test_a_picture_is_one_complete_file_with_titles_and_notes(tmp_path) -> None:
    picture = Picture(ALL, 2, "Below them all.")
    text = picture.save(tmp_path / "picture.svg").read_text(encoding="utf-8")
    assert text == picture._repr_svg_() + "\n"
    assert [each["class"] for each in shapes(text, "svg")] == ["colonnade chart"]
    for said in ("A title", "A note.", "Over time", "Below them all."):
        assert f">{said}</text>" in text
    assert not re.search(r"url\((?!#)|href|:root", text), "nothing is fetched, and colours are for this drawing alone"
    assert all(f".f{k} " in text for k in range(COLOURS))


def test_control_codes_and_markup_are_shown_as_text() -> None:
    chart = BarChart([Bar("<b>y</b>", 1.0, "&1", group="\x1b[1mg")], "<i>z</i>", title="<script>", note="\x1b")
    text = Picture([chart]).svg
    assert "<b>" not in text
    assert "<script>" not in text
    assert "\x1b" not in text


def test_numbers_that_are_not_finite_leave_the_others_as_they_are_and_nothing_to_draw_is_an_empty_chart() -> None:
    nan, inf = float("nan"), float("inf")
    bars = BarChart([Bar("lost", nan, "none", "grey", -inf, inf), Bar("there", 2.0, "2.0")], "x", title="b")
    cells = HeatMap(
        ["one"], [HeatMapRow("a", [HeatMapCell(nan, "none")]), HeatMapRow("b", [HeatMapCell(0.5, "+0.50")])], title="c"
    )
    empty = [
        BarChart([], "x", title="b"), HeatMap([], [], title="c"), HistogramChart([], title="d"),
        LineChart([], Axis("x"), Axis("y"), title="e"), HistogramChart([Histogram("f", [], [])], title="f"),
    ]  # fmt: skip
    drawn = Picture([bars, cells, *empty]).svg
    assert "nan" not in drawn
    assert "inf" not in re.sub(r"<text[^>]*>[^<]*</text>", "", drawn)


def test_text_is_measured_wrapped_cut_and_kept_apart() -> None:
    assert extent("ill!") < extent("same") < extent("MOWN"), "letters have the room that they need"
    assert wrap("one two three", extent("one two ")) == ["one two", "three"]
    assert shorten("a long name", extent("a long")).endswith("…")
    assert ticks(0.0, 1.0) == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert apart([0.0, 1.0, 50.0], [10.0] * 3, 0, 100) == [0.0, 10.0, 50.0]
