"""Audits the randomizer that is installed on a board: the ε that its outputs show."""
