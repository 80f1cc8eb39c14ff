"""Local hashing: codes are cells of a random hash, and support all values of their cell."""
