"""Composes the agent, one on every node: device plugin, claims, networks of pods, reports.

Only the command `kube-rdma agent` and the self-test import it. Role `plugin` offers devices alone,
role `node` gives pods their networks too.
"""
