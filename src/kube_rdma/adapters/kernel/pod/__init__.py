"""Runs Steps on the network of a pod, waits for what they need, and names their errors."""
