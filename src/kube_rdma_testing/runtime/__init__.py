"""The container runtime: CDI files and the CRI."""
