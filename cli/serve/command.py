"""`hushmote serve`: the aggregator."""

from ..options import command
from .options import ServeOptions


def _serve(options: ServeOptions) -> None:
    """Run the aggregator: subscribe, authenticate, deduplicate, count, commit, acknowledge.

    Several on one store divide the reports: each with its own client_id, all with one share. FILE.toml has
    these two and protocol; or HUSHMOTE_CLIENT_ID, _SHARE and _PROTOCOL. HUSHMOTE_LOG_FORMAT is text or json.
    """
    from .run import run  # only here: a mistake in the line waits for nothing of it

    run(options)


serve_command = command(ServeOptions, _serve)
