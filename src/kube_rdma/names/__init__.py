"""Gives the RDMA addresses of pods DNS names, by EndpointSlices of Services without selector.

resources, explain, controller and cli may import it.
"""
