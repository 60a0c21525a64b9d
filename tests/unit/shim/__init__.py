"""The host's binary and its fake."""
