"""All marginals of coded columns, in one noisy release: what synthesis, and whatever else counts people, is built on.

Not a study by itself yet, so it has no row in the registry. No paper of the five; the release is one noisy joint sum,
as SQM opens it. Theorem: docs/theory/marginals.md; what follows from a release: docs/theory/fitting-marginals.md.

What leaves: the centred cells of every marginal that was asked for, with noise, opened once (in two stages if bins are
to hold equally many people).

Reading order:

- ``layout``: columns as codes and bins, which marginals are asked for, and how exactly.
- ``task``, ``programs``, ``stages``: the protocol, in one release or in two; ``sensitivity``: how far one person moves
  all cells together.
- ``release``: what was opened, and marginals with error bars from it.
- ``audit``: the games.
"""
