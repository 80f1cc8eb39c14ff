"""Properties that every mechanism must have, proven or tested on the small experiments that it lists itself.

`check.check(word)` is `hushmote check-mechanism`; tests/contracts runs the same checks over the registry.
"""
