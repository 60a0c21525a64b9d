"""Metrics as Prometheus reads them, a socket for the agent's own, and figures of the process."""
