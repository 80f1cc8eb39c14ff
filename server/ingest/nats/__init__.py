"""NATS servers as a source of reports, through a JetStream consumer."""
