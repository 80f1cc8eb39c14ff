"""Sentences: how numbers, lengths of time, ε and experiments are written everywhere."""
