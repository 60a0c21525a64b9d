"""Helpers that tests of more than one folder use: made-up nodes, pods, records and servers."""
