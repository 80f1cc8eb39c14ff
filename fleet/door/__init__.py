"""Accepts reports over HTTP, for devices without MQTT."""
