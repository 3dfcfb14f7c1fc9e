"""Linear and logistic regression on columns of all parties.

Paper: two of them. The functional mechanism in the multiparty setting (``method="functional"``: coefficients with
discrete Laplace noise), and SQM (``method="one-shot"`` from second moments, ``method="sqm"`` by noisy gradients).
Theorems: docs/theory/functional-sensitivity.md, docs/theory/moments-sensitivity.md and
docs/theory/gradient-sensitivity.md.

What leaves: one noisy matrix of second moments, opened once, or the noisy gradient of each round. Weights, error bars
and what the result tells about each party follow from that.

Reading order:

- ``model``: ``LinearRegression`` and ``LogisticRegression``, which a data scientist calls, and their expected errors.
- :mod:`colonnade.protocols.moments`: the task and programs of one release, with the bounds of the functional mechanism
  (:mod:`colonnade.privacy.sensitivity`); ``least_squares``: from that release to weights, with error bars.
- ``task``, ``programs``: rounds of gradients; ``sensitivity``: how far one person moves a gradient;
  both ways to weights are in ``least_squares``.
- ``report``: how a person sees the result.
- ``audit``: the games.
"""
