"""The aggregator's process: signals, logging, metrics and health."""
