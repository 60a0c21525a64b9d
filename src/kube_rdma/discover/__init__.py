"""Proposes an installation from the hardware of a cluster's nodes.

Only cli may import it.
"""
