"""Split networks: every party keeps an encoder of its own columns, and a head joins their embeddings.

Paper: VFL-AFE. ``adaptive_programs`` runs its Algorithm 1 as published, and nothing is promised about it
(docs/theory/embeddings-as-published.md). The other ways to a head are proven: docs/theory/heads-from-moments.md (a
committee learns the head), docs/theory/embedding-releases.md and docs/theory/private-updates.md (embeddings are told).

What leaves: with ``head="committee"`` one noisy matrix of second moments of embeddings and labels, opened once; with
``head="embeddings"`` every party's embeddings with noise, told to the party with the label, and where encoders learn,
answers about labels with noise and the noised sums by which they learn. With ``head="published"`` embeddings leave in
every epoch and slopes come back, as the paper has it: nothing is promised. Encoders never leave.

Reading order:

- ``model``: ``SplitClassifier`` and ``SplitRegressor``, which a data scientist calls.
- ``head_strategy``: what the ways to a head have in common, and a committee's;
  ``embeddings_strategy`` with ``embedding_task`` and ``embedding_programs``: that over told embeddings, and the
  algorithm as published with ``adaptive_programs``.
- ``heads``: linear heads from noisy sums and from noisy embeddings, and heads that learn step by step.
- ``encoder_base``: what encoders are, and those in numpy; ``torch_encoders``: networks; ``encoders``: how encoders are
  said, made, checked and kept.
- ``scores``: scores of new people, a study of its own.
- ``report``: how a person sees the result.
- ``audit``: the games, and what an attacker sees of one person.

A head is a regression, its directions are those of PCA, and scores are added up as joint predictions are: so this kind
imports those three.
"""
