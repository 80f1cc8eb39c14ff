"""The wire format: report encoding, topics and keys; pure functions."""
