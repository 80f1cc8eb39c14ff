"""Audits the randomizer that a runtime or a board runs: the ε that its outputs show."""
