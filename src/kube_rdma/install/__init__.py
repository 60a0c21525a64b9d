"""Describes an installation once, and prints it as manifests or as a Helm chart.

operator, reports and what stands above them may import it.
"""
