"""Reads and writes device information, support bundles, os-release and neighbours of ports."""
