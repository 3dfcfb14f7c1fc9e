"""A fitted model, its run and its statement, as pages of reports show them."""

from tests.report.conftest import evaluation as evaluation, model as model, run as run, statement as statement
