"""Knows the cables: which switch port each card is plugged into, and which it should be.

reports and the packages above it may import it.
"""
