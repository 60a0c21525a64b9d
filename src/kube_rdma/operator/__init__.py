"""Turns a NicClusterPolicy into DaemonSets and says in its status how far that is.

The controller and commands import it.
"""
