"""The format of everything on the wire: the codec of reports, topics and keys; pure."""
