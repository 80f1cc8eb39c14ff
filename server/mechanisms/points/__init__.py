"""Projective points: a code is likely where it is orthogonal to the value."""
