"""Decodes the object NicClusterPolicy of the Network Operator's document."""
