"""Describes an installation once, prints it as manifests or as a Helm chart, and applies it.

operator, reports and what stands above them may import it.
"""
