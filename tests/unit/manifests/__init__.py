"""The manifests that people apply: examples and config."""
