"""Addresses as they are given: the rules of IPAM with real neighbours, on nodes and controller."""
