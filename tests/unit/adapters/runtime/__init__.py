"""The container runtime."""
