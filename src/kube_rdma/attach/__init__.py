"""Gives pods their networks: CNI calls in, Steps out, and the repair of what was missed.

Late binding, settings files and the node's CNI configuration are part of it. It imports pools,
ipam, hardware and metrics; install and the packages above it may import it.
"""
