"""Says what becomes of a pod, by the rules of the agent itself.

agent, verify, controller and cli may import it.
"""
