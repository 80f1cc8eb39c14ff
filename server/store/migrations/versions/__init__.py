"""One module per schema version; each is frozen once released, and imports nothing of schema."""
