"""What every source of rows answers, wherever the rows lie."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Sequence

from colonnade.errors import DataError
from colonnade.tables.arrow import pa
from colonnade.tables.files import Chooser
from colonnade.tables.sources.grown import together


class Source(ABC):
    """Rows of one party, read some at a time from the first to the last.

    ``name`` is how errors and pages call the source; it never holds a credential. ``again`` says whether the rows can
    be read a second time, in the same order: what cannot is copied when it is read.
    """

    again = True
    held = False
    """Whether the rows are in memory already, so that nothing is won by leaving them where they are."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._first: Hashable = None

    @abstractmethod
    def columns(self) -> list[str]:
        """The names of all columns."""

    @abstractmethod
    def _rows(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Some columns of all rows; no other column is read. The batches of one call have the same types."""

    def state(self) -> Hashable:
        """A value that changes when the rows do; ``None`` where nothing tells."""
        return None

    def size(self, choose: Chooser) -> int:
        """About how many bytes of memory the chosen columns would take; it asks for a choice only if that matters."""
        return 0

    def pieces(self, columns: Sequence[str]) -> list[Source]:
        """These columns in pieces, which other processes can read and which together are all rows in their order.

        Each can be pickled, and holds no credential. Empty where rows come in one stream. How rows are divided follows
        from the source alone, not from who reads it.
        """
        return []

    def look(self) -> None:
        """Note the state that must not change from now on."""
        self._first = self._noted()

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Some columns of all rows; raises, at the latest at the end, if the source has changed since :meth:`look`."""
        if self._first is None:
            self._first = self._noted()
        else:
            self.refuse_changes()
        try:
            yield from self._rows(columns)
        except DataError:  # what changes while it is read may look broken
            self.refuse_changes()
            raise
        self.refuse_changes()

    def whole(self, choose: Chooser) -> pa.Table:
        """The chosen columns, in memory."""
        return self.read(list(choose(self.columns())))

    def read(self, columns: Sequence[str]) -> pa.Table:
        """Some columns, in memory; text gets the type that ids have, so that it is not copied again."""
        return together(self.batches(columns), columns)

    def count(self) -> int:
        """How many rows there are."""
        return sum(int(batch.num_rows) for batch in self.batches(self.columns()[:1]))

    def _noted(self) -> Hashable:
        """The state that must not change from now on."""
        return self.state()

    def refuse_changes(self) -> None:
        """Raise if the source has changed since :meth:`look`."""
        if self.state() != self._first:
            raise DataError(f"{self.name}: {self.changed}; read it again [DA203]")

    @property
    def changed(self) -> str:
        """What to say of a source whose state is another one."""
        return "the file has changed since it was first read"
