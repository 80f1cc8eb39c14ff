"""The aggregator as a process: signals, log, metrics and health."""
