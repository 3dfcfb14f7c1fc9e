"""Made-up people from columns that nobody holds together: a table that may be published.

Paper: DPVI on vertically partitioned data (``method="mixture"``), with inference on shares. The default is one release
of marginals (:mod:`colonnade.kinds.tables`) and a model fitted to them.
Theorems: docs/theory/marginals.md; docs/theory/mixture-sensitivity.md and docs/theory/mixture-rounds.md;
docs/theory/mixture-model.md and docs/theory/fitting-marginals.md say what is done with it.

What leaves: noisy marginals, opened once, or the noisy sums of each round of inference. Tables, cards and intervals are
drawn from the fitted model without another look at data.

Reading order:

- ``model``: ``Synthesizer``, which a data scientist calls, and its parameters.
- ``release_fit``: from a release to a model, and figures with the noise in them.
- ``population``: made-up people, and how well they agree with the release; ``card``: what lies beside the table.
- ``mixture/``: DPVI: task, programs, responsibilities on shares, inference; ``sensitivity``: how far one person moves a
  round.
- ``quality`` with ``table_comparison``: beside the real table, for its owners, and as
  ``colonnade quality`` shows it.
- ``report``: how a person sees the result.
- ``audit``: the games.
"""
