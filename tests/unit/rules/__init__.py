"""Rules: examples for what documents promise, hypothesis for what holds on every node."""
