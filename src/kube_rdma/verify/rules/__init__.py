"""Decides who measures with whom and when, how, and what the figures say."""
