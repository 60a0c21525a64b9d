"""Writes machines of tests/data/trees: the text of a recorded node, and the tables of its page."""
