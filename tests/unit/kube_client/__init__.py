"""The client of the API server, and what goes wrong on the way."""
