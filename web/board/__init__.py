"""The browser board: device/ldp_client.py on MicroPython's WebAssembly port, as static files."""
