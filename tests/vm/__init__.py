"""Kernel tests: what is outside of the bare machine; guest/ is what runs in it."""
