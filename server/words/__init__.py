"""Sentences: how numbers, durations, ε and experiments are written everywhere."""
