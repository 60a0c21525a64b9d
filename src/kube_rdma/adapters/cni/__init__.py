"""Neighbour: CNI. The shim's calls come in here, and the plugins of others are called from here."""
