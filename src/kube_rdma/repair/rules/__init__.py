"""Decides which nodes are tainted for their cards, and which new ones were measured well."""
