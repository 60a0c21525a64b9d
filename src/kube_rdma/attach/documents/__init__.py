"""Decodes annotations, network definitions and CNI configurations, and encodes what pods read."""
