"""Asks the container runtime by CRI, and writes CDI files and settings of containers."""
