"""Reads and writes device information, support bundles, neighbours of ports; reads os-release."""
