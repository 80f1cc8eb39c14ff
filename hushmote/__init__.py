"""Hushmote: private telemetry for fleets of microcontrollers."""
