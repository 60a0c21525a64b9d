"""Addresses: what people ask for in IPPools and ipam blocks, what programs write for each other."""
