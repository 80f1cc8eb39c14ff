"""Reports by HTTP, for whatever cannot speak MQTT."""
