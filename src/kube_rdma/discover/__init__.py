"""Proposes an installation from the hardware of a cluster's nodes.

Only cli imports it.
"""
