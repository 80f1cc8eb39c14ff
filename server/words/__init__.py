"""The one voice: how numbers, lengths of time, ε and experiments read in a sentence."""
