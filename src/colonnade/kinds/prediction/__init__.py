"""Scores of new people by a public model, when nobody holds all their columns; one party alone receives them.

No paper of the five: the sum of the parties' parts is opened to one party, as SQM opens sums to all.
Theorems: docs/theory/joint-prediction.md (sums with noise) and docs/theory/levels-of-scores.md (levels, answered at
random, and what the receiver may believe).

What leaves: to the party that is entitled, and to nobody else, one sum a person with noise (or exact, where the others
allow it), or one level of each other party.

Reading order:

- ``model``: ``JointPrediction`` and ``joint_scores``, which a data scientist calls, and sums as a session
  that stays open for questions.
- ``task``: sums on shares, or levels answered at random; ``programs``: those of sums;
  ``randomised_answers``: those of levels.
- ``score_posterior``: from what was heard to what is believed of a person.
- ``report``: how a person sees the result.
- ``audit``: the games.
"""
