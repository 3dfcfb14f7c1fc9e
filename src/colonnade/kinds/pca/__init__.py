"""Principal components of columns that nobody holds together.

Paper: SQM (Skellam quantisation in multiparty computation), Algorithms 1 to 3 for the polynomial ``x -> x x'``.
Theorems: docs/theory/moments-sensitivity.md (all second moments in one release) and docs/theory/subspace-iteration.md
(wide tables: products with a few directions, round by round).

What leaves: one noisy matrix of second moments, opened once; for wide tables the noisy products of each round. The
components, their variances and error bars follow from that without another look at data.

Reading order:

- ``model``: ``PCA``, which a data scientist calls; it plans one of the two tasks.
- :mod:`colonnade.protocols.moments`: the task and programs of second moments, which regression and split share.
- ``task``, ``programs``, ``subspace_iteration``: the task of wide tables and how far one person moves it, its programs
  and its public search.
- ``sensitivity``: how far one person moves products with directions.
- ``report``: how a person sees the result.
- ``audit``: the games.
- ``evaluation``: beside a trusted curator and local noise, for experiments.
"""
