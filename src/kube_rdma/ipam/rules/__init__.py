"""Decides which address a pod gets, and when one is free again. Generators do it, without I/O."""
