"""The container runtime: questions to it by CRI, CDI files, and settings of containers."""
