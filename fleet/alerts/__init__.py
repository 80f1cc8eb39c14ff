"""Tells people about changes, releases, silence and operations, once each, through Apprise."""
