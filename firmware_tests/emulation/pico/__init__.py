"""An emulated Raspberry Pi Pico: MicroPython's own firmware, built from source, in the emulator rp2040js."""
