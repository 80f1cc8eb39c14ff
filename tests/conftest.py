"""Fixtures that tests of several modules take."""

from postgres import postgres, postgres_url

__all__ = ["postgres", "postgres_url"]
