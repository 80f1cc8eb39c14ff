"""From the broker to the store: connecting, decoding, judging, deduplicating, pacing."""
