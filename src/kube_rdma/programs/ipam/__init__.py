"""IPAM, running: its rules with real neighbours, on nodes and in the controller."""
