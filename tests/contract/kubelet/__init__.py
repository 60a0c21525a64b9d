"""Kubernetes' own descriptions of its APIs, and ours."""
