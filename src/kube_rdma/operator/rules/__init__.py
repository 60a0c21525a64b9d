"""Decides which DaemonSets a policy means, and what their state says."""
