"""Serves ResourceClaims: publishes devices in slices, prepares claims and explains them.

The driver of dynamic resource allocation, and what the cluster says of claims of any driver. It
imports attach and pools; admission, resources, doctor, explain, verify and the agent import it.
"""
