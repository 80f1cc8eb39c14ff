"""One module per schema version; each is frozen once it was released, and imports nothing of schema."""
