"""Keeps what the cluster knows of the agent's node: labels, taint, condition, report, policies."""
