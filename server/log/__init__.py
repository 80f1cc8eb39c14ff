"""The public log of questions: append-only, and checked by witnesses, so that no home is asked alone."""
