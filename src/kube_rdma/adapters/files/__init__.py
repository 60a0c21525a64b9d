"""Neighbour: files that somebody else writes, such as a mounted ConfigMap."""
