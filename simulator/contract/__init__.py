"""Properties that every mechanism must have, proven or tested on the small experiments in its `examples`.

`check.check(word)` is `hushmote check-mechanism`; tests/contracts runs the same checks over the registry.
"""
