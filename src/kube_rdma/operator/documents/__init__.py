"""Decodes the object NicClusterPolicy of NVIDIA's Network Operator."""
