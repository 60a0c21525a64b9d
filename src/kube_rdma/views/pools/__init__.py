"""Pools as a configuration means them, and the modes that a pool can have."""
