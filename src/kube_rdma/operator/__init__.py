"""Turns a NicClusterPolicy into DaemonSets and says in its status how far that is.

The controller, commands and other capabilities above it import it, such as reports and claims.
"""
