"""The agent, one on every node: device plugin of the kubelet, and networks of pods.

Role `plugin` does the first alone, role `node` both.
"""
