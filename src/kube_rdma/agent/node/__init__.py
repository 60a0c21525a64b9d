"""Keeps what the cluster knows of the agent's node, such as labels and report."""
