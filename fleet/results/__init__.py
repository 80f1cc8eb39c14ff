"""Publishes results: as retained messages, for Home Assistant and for Prometheus."""
