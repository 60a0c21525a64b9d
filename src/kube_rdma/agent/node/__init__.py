"""Keeps the agent's marks on its Node object: labels, taint, condition, report, policies."""
