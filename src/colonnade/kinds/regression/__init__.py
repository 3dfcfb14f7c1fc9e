"""Linear and logistic regression on columns of all parties.

Paper: two of them. The functional mechanism in the multiparty setting (``method="functional"``: coefficients with
discrete Laplace noise), and SQM (``method="one-shot"`` from second moments, ``method="sqm"`` by noisy gradients).
Theorems: docs/theory/functional-sensitivity.md, docs/theory/moments-sensitivity.md and
docs/theory/gradient-sensitivity.md.

What leaves: one noisy matrix of second moments, opened once, or the noisy gradient of each round. Weights, error bars
and what the result tells about each party follow from that.

Reading order:

- ``linear``, ``logistic``: the models that a data scientist calls; ``base``: what they share.
- :mod:`colonnade.protocols.moments`: the task and programs of one release, with the bounds of the functional mechanism
  (:mod:`colonnade.privacy.sensitivity.moments`); ``least_squares``: from that release to weights.
- ``gradients/``: the task and programs of rounds; ``sensitivity``: how far one person moves a gradient.
- ``error_bars``, ``gradient_descent``, ``score_parts``: what noise leaves in doubt; ``base``: the same before a study.
- ``report``: how a person sees the result.
- ``audit``, ``audit``: the games.
"""
