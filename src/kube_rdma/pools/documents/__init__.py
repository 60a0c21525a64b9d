"""Decodes the dialects in which a node's pools are configured."""
