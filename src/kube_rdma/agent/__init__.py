"""Composes the agent, one on every node: device plugin, claims, networks of pods, reports.

Only the command `kube-rdma agent` imports it. Role `plugin` offers devices. With role `node` beside
it the agent also uses the API server, as for claims, pod networks and reports. Role `node` alone
only labels the node.
"""
