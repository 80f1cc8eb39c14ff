"""Say whether a new version is worse than the others, at every look while it rolls out; pure numerics."""
