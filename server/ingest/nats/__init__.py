"""NATS servers as a source of reports, by a JetStream consumer."""
