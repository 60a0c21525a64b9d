"""Judges an Observation: Findings out, root causes first."""
