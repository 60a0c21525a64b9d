"""Keeps records on disk of what the agent promised and did, to be known again after a crash."""
