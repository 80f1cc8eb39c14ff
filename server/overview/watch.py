"""Whether something was committed to a store since one last looked."""

from __future__ import annotations

from sqlalchemy import text

from ..answers.store_reader import StoreReader
from ..errors import HushmoteError


class StoreWatch:
    """A store that is looked at often; for one thread at a time.

    trouble: why it cannot be read, in one sentence, or None.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._reader: StoreReader | None = None
        self._mark: object = None
        self.trouble: str | None = None

    def reader(self) -> StoreReader:
        """The open store; raises StoreError where it cannot be opened."""
        if self._reader is None:
            self._reader = StoreReader(self._url)
        return self._reader

    def look(self) -> bool:
        """Return whether there is something new; never raises."""
        try:
            with self.reader().store.reading() as connection:
                mark = connection.execute(text("select sum(count), count(*) from histogram")).one()
        except HushmoteError as e:
            self.trouble, self._reader = str(e), None
            return False
        self.trouble = None
        changed, self._mark = tuple(mark) != self._mark, tuple(mark)
        return changed

    def close(self) -> None:
        """Close the store."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
