"""Move reports from the broker to the store: connect, decode, authenticate, deduplicate and pace."""
