"""The container runtime: what it is and how it is set."""
