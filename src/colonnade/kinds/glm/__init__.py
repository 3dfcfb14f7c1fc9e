"""Generalised linear models over noised messages: there is no committee, and each party keeps its own weights.

Paper: HDP-VFL, Algorithm 1 (``method="gradient"``), with received numbers clipped; ``method="alternating"`` fits
instead of taking steps. Theorems: docs/theory/exchange-sensitivity.md (Theorem H), docs/theory/alternating-fits.md,
docs/theory/glm-families.md (the losses).

What leaves: scores of the parties without the label, and slopes of the party with it, each with noise on a grid; the
weights stay with their parties unless they are released, which is one more noisy release.

Reading order:

- ``model``: ``GLM``, which a data scientist calls; ``planning``: its public parameters; ``preflight``: what it says and
  promises to whom.
- ``task``, ``programs``: Algorithm 1: the public task and a program for each side; ``sides``: what each side computes.
- ``losses``: families, their labels, and certified fits.
- ``sensitivity``: how far one person moves the messages of a whole run.
- ``fitted``: the fitted model, and the weights that parties keep.
- ``kept_scores``: scores of new people by kept weights, a study of its own.
- ``report``: how a person sees the result.
- ``audit``: the games.
"""
