"""Decides what an installation consists of."""
