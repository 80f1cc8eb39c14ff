"""The format of everything on the wire: the reports' codec, topics and keys; pure."""
