from __future__ import annotations

import numpy as np
import pytest

from tests.support.pages import Page
from tests.support.reports import make_model, make_run, make_statement, rendered


@pytest.fixture
def known():
    """A PCA whose first component can be told apart, and whose second and third cannot."""
    model = make_model(n_components=3)
    shape = model.components_.shape
    model.components_deviations_ = np.full(shape, 0.05)
    model.components_low_, model.components_high_ = model.components_ - 0.1, model.components_ + 0.1
    model.components_low_[1:], model.components_high_[1:] = -0.6, 0.6
    model.explained_variance_deviations_ = np.full(3, 0.01)
    model.explained_variance_low_, model.explained_variance_high_ = model.explained_variance_ * [[0.9], [1.1]]
    model.mean_deviations_ = np.full(shape[1], 0.01)
    model.angles_ = np.array([12.3, 90.0, 90.0])
    model.together_ = np.array([[0, 0], [1, 2], [1, 2]], dtype=float)
    return model


def test_what_cannot_be_told_apart_is_said_and_greyed(known):
    html = rendered(make_run(), make_statement(), known)
    assert "Components 2 and 3 cannot be told apart: any mixture of them fits as well." in html
    assert "1 of 3 components can be told apart from all others." in html
    assert "13°" in html
    page = Page(html)
    grey = [attrs for name, attrs in page.tags if name == "text" and "unclear" in attrs.get("class", "")]
    coloured = [attrs for name, attrs in page.tags if name == "rect" and attrs.get("class") in ("pos", "neg")]
    assert len(grey) >= 2 * 2 * 15  # two components, two widths, fifteen columns
    assert coloured
    assert sum(attrs.get("class") == "unclear" for name, attrs in page.tags if name == "tr") == 2
    assert "± 0.05" in html


def test_a_model_without_errors_has_the_page_it_had(known):
    html = rendered(make_run(), make_statement(), make_model(n_components=3))
    assert "What the noise leaves unknown" not in html
    assert "unclear" not in html.split("</style>")[1]
    assert "± 0" not in html
