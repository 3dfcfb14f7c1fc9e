from __future__ import annotations

import math
import re

import pytest
from hypothesis import given, strategies as st

from colonnade.report import canvas, charts, squares, words
from colonnade.report.markup import Html, escape, tag


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 s"), (3.4, "3.4 s"), (0.0123, "12 ms"), (0.00123, "1.2 ms"), (125, "2 min 5 s"), (4330, "1 h 12 min")],
)
def test_seconds(value, text):
    assert words.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0 B"), (900, "900 B"), (999.9, "1.0 kB"), (1_234_567, "1.2 MB"), (345e9, "345 GB")]
)
def test_sizes(value, text):
    assert words.size(value) == text


@pytest.mark.parametrize(("value", "text"), [(1e-5, "10⁻⁵"), (2.5e-6, "2.5·10⁻⁶"), (0.05, "0.05"), (3e-12, "3·10⁻¹²")])
def test_delta_is_shown_exactly(value, text):
    assert words.power(value) == text


@given(st.floats(1e-6, 15))
def test_epsilon_and_its_factor_are_never_rounded_down(value):
    assert float(words.epsilon(value)) >= value
    assert float(words.times(value).replace(",", "")) >= math.exp(value)


def test_lists():
    assert words.listed([]) == ""
    assert words.listed(["a"]) == "a"
    assert words.listed(["a", "b", "c"]) == "a, b and c"
    assert words.listed(list("abcdefgh")) == "a, b, c, d, e and 3 more"


def test_markup_escapes_what_is_not_markup():
    assert tag("p", "<b>", Html("<i></i>"), title='"x"') == '<p title="&quot;x&quot;">&lt;b&gt;<i></i></p>'
    assert escape("a\u2066b") == "a\ufffdb"


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6), st.integers(2, 9))
def test_ticks_span_the_interval(low, width, count):
    marks = canvas.ticks(low, low + width, count)
    assert marks[0] <= low + 1e-6 * width + 1e-9
    assert marks[-1] >= low + width - 1e-6 * width - 1e-9
    assert 2 <= len(marks) <= 2 * count + 3


@given(st.text(min_size=1, max_size=80), st.integers(30, 300))
def test_wrapped_text_is_whole_and_fits(text, limit):
    lines = canvas.wrap(text, limit)
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert all(canvas.extent(line) <= limit for line in lines)


@given(st.lists(st.tuples(st.floats(0, 200), st.integers(1, 3)), min_size=1, max_size=6))
def test_labels_do_not_overlap(given):
    wanted = sorted(place for place, _ in given)
    gaps = [15.0 * rows for _, rows in given]
    placed = canvas.apart(wanted, gaps, 0, 330)
    for k in range(1, len(placed)):
        assert placed[k] >= placed[k - 1] + gaps[k - 1] - 1e-9
    assert placed[0] >= -1e-9
    assert placed[-1] + gaps[-1] <= 330 + 1e-9


@pytest.mark.parametrize("width", [canvas.WIDE, canvas.NARROW])
def test_drawn_rectangles_stay_inside(width):
    items = [charts.Bar("a rather long label of a party " * k, v, f"{v}") for k, v in enumerate([0.5, 3.0, None], 1)]
    drawn = charts.bars("k", width, items, title="t", description="d", high=2.0, band=(9.0, "noise"))
    for x, wide in re.findall(r'<rect x="([-\d.e]+)" y="[^"]*" width="([-\d.e]+)"', drawn):
        assert 0 <= float(x) <= float(x) + float(wide) <= width + 0.1


def test_a_curve_on_logarithmic_scales_begins_where_the_scale_does():
    points = [(0.0, 0.0), (0.00001, 0.002), (0.0005, 0.01), (0.01, 0.1), (1.0, 1.0)]
    drawn = squares.rare_curves("k", 700, [squares.Curve("c", points)], x="x", y="y", title="t", description="d")
    ((path,),) = [re.findall(r'<polyline points="([^"]*)"', drawn)]
    across = [float(point.split(",")[0]) for point in path.split()]
    assert len(across) == 3  # from the last point that lies before the scale
    assert across == sorted(set(across))
