"""Decides how many virtual functions each card gets, and what has to wait."""
