"""Decides what nodes report, and what the reports of all of them come to."""
