"""Decides which cards a pool has, how many shares it offers and which of them a container gets."""
