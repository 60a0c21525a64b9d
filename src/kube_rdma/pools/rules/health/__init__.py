"""Decides which devices and cards can be given to a pod, and why the others cannot."""
