"""What every mechanism must keep, proven or tested on the small experiments that it names itself.

`check.check(word)` is `hushmote check-mechanism`; tests/contracts runs the same over the whole registry.
"""
