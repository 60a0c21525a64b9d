"""Helpers that tests of more than one room use: made-up nodes, pods, records and servers."""
