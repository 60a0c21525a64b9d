"""Decides what a survey means, without reading anything."""
