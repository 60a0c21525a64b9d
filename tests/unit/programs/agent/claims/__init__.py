"""The driver of claims in the agent."""
