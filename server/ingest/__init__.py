"""From the broker to the store: connecting, decoding, authenticating, deduplicating and pacing."""
