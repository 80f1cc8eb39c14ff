"""One module per schema version; each is frozen once released, and does not import the schema module."""
