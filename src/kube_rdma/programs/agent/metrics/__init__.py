"""What the agent exports to Prometheus."""
