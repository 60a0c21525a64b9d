"""Decodes manifests, the pods in them and settings of admission."""
