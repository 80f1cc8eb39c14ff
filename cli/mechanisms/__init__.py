"""The command `hushmote mechanisms`."""
