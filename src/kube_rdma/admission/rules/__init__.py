"""Decides what is wrong with a pod that asks for shares, and what is completed in it."""
