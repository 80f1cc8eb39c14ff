"""`hushmote` with a mistake that a chaos run must find: it acknowledges reports before it commits them."""

import time

from hushmote.cli.main import main
from hushmote.server.aggregator import Aggregator
from hushmote.server.ingest.source import ReportConnection

_COMMIT_S = 0.05  # a disk that is slow


def _commit(self: Aggregator, connection: ReportConnection) -> None:
    if messages := list(connection.messages):
        connection.acknowledge()
        time.sleep(_COMMIT_S)
        self._committer.commit(messages)
        self._oldest_uncommitted_at = None


Aggregator._commit = _commit

if __name__ == "__main__":
    main()
