"""Kernel tests: what is outside of the bare machine; vm/ is what runs in it."""
