"""Decides which promise stands for which container, and when that may start."""
