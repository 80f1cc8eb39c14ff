"""`hushmote serve`: the aggregator."""

from ..options import command
from .options import ServeOptions


def _serve(options: ServeOptions) -> None:
    """Run the aggregator: subscribe, authenticate, deduplicate, count, commit, acknowledge.

    In a keyed fleet it signs experiments if it has the signing key. Otherwise it publishes those of
    `hushmote experiment sign`, and says which have to be signed.

    Several aggregators on one store divide the reports. Each has its own client_id, all have one share:
    FILE.toml or HUSHMOTE_CLIENT_ID, _SHARE and _PROTOCOL say which. HUSHMOTE_LOG_FORMAT is text or json.
    """
    from .run import run  # only here: a mistake in the line waits for nothing of it

    run(options)


serve_command = command(ServeOptions, _serve)
