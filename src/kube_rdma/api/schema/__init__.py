"""The kinds at the API server: definitions and reference pages, made from the models."""
