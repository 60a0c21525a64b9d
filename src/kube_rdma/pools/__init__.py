"""Offers a node's cards as shares of pools: configuration, health, virtual functions, labels.

It stands on lib, adapters and model alone; every other capability may import it.
"""
