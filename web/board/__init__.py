"""A board in the browser: device/ldp_client.py on MicroPython's WebAssembly port, as static files."""
