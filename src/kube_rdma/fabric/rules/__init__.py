"""Decides what frames say, which leaves a node is on, and which cable is not where it belongs."""
