"""What was learned, where people look: retained messages, Home Assistant, Prometheus."""
