"""What goes over the wire: the reports' codec, topics and keys; pure."""
