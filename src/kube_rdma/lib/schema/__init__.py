"""Makes definitions and reference pages of kinds at the API server from their models."""
