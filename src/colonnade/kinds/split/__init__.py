"""Split networks: every party keeps an encoder of its own columns, and a head joins their embeddings.

Paper: VFL-AFE. ``adaptive/`` runs its Algorithm 1 as published, and nothing is promised about it
(docs/theory/embeddings-as-published.md). The other ways to a head are proven: docs/theory/heads-from-moments.md (a
committee learns the head), docs/theory/embedding-releases.md and docs/theory/private-updates.md (embeddings are told).

What leaves: with ``head="committee"`` one noisy matrix of second moments of embeddings and labels, opened once; with
``head="embeddings"`` every party's embeddings with noise, told to the party with the label, and where encoders learn,
answers about labels with noise and the noised sums by which they learn. With ``head="published"`` embeddings leave in
every epoch and slopes come back, as the paper has it: nothing is promised. Encoders never leave.

Reading order:

- ``model``: ``SplitClassifier`` and ``SplitRegressor``, which a data scientist calls; ``base``, ``base``: what they
  share.
- ``base``, ``head_strategy``: the ways to a head: ``committee_strategy`` with ``committee_head`` and ``heads``; ``embeddings_strategy`` with
  ``embeddings/``; ``published_strategy`` with ``adaptive/`` and ``trained_heads``.
- ``encoder_base``, ``encoders``: what encoders are; ``numpy_encoders``, ``numpy_encoders``, ``numpy_encoders`` in numpy, ``torch_encoders`` and
  ``torch_encoders`` in torch, ``own`` of a party; ``validate_params``, ``specified``, ``encoder_base``, ``encoder_base``: how they are checked.
- ``owner_training``, ``private_training``: encoders that learn, charged.
- ``head_strategy``, ``trained_heads``, ``committee_strategy``, ``validate_params``: what heads learn, from torch, for comparison, and by which numbers.
- ``sensitivity``: how far one person moves embeddings and updates.
- ``scores`` with ``scores`` and ``score_prior``: scores of new people, a study of its own; ``encoders``: what parties keep.
- ``report``: how a person sees the result.
- ``audit``, ``audit``: the games;
  ``attack_views``, ``attack_slopes``: what an attacker sees of one person.

A head is a regression, its directions are those of PCA, and scores are added up as joint predictions are: so this kind
imports those three.
"""
