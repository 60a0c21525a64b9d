"""Kernel tests that also run in the VM (tests/vm/guest), here on the fake kernel."""
