"""Decides what a node's slices offer, what a claim gets, and why one is not prepared."""
