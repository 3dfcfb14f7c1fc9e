"""What the active party's head must be able to do while it and the encoders learn together."""

from __future__ import annotations

from typing import Protocol

from colonnade.kinds.split.embeddings.learner import Matrix, Places


class HeadLearner(Protocol):
    """A head that joins the embeddings of all parties and knows the labels, by the places of the rows."""

    def slopes(self, places: Places, embeddings: Matrix, /) -> tuple[float, Matrix]:
        """Learn from one batch: its mean loss, and how each row's own loss changes with the row, (n, all widths).

        Columns stand in the order of the task's senders, those of the active party's own encoder last. The slopes are
        those before the head moves, and are not divided by the number of rows.
        """
