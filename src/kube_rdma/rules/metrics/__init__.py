"""What is exported to Prometheus: which series exist, and how they follow from what was read."""
