"""The way to the API server, and what goes wrong on it."""
