"""Mechanisms on projective points, in which a code is more likely if it is orthogonal to the value."""
