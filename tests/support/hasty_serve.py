"""`hushmote` with a bug that a chaos run must detect: it acknowledges reports before committing them.

    python hasty_serve.py FILE serve ...

The first process to receive reports creates FILE, logs HASTY once the broker has its acknowledgements, and
waits to be killed.
"""

import signal
import sys
from pathlib import Path

from hushmote.cli.main import main
from hushmote.server.aggregator import Aggregator
from hushmote.server.ingest.source import ReportConnection

HASTY = "acknowledged, and not committed"


def _commit(self: Aggregator, connection: ReportConnection) -> None:
    if messages := list(connection.messages):
        connection.acknowledge()
        try:
            Path(FILE).touch(exist_ok=False)
        except FileExistsError:
            self._committer.commit(messages)
        else:
            connection.close()  # flushes queued data
            print(HASTY, flush=True)
            while True:
                signal.sigwait([signal.SIGUSR1])  # never sent
        self._oldest_uncommitted_at = None


if __name__ == "__main__":
    FILE = sys.argv.pop(1)
    Aggregator._commit = _commit
    main()
