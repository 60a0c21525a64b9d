"""Decides what becomes of a pod, by the rules of the agent itself."""
