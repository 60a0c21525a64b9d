"""Decides which DaemonSets a policy wants, how drivers change, and what the state of both is."""
