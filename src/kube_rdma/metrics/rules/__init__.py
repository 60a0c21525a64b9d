"""Decides which series exist, and how they follow from what was read."""
