"""Reads and writes files: device information, support bundles, os-release and neighbours."""
