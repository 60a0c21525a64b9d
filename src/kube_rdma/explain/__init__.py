"""Says what becomes of a pod, by the rules of the agent itself.

verify, controller and cli may import it.
"""
