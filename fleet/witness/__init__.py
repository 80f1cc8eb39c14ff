"""Witnesses a log: signs its tree heads only while its own rule for each question holds."""
