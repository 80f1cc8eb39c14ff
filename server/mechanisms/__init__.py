"""What the server knows of each mechanism: its channel, its decoder, how one is chosen."""
