"""NodePolicies at the API server, followed by the agents of all nodes.

The spec travels as it is, for what is wrong in it is told with the object's name.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

from kube_client.kinds import NOTHING, ObjectCodec, ObjectKind, Stored
from kube_client.objects import Cluster
from kube_client.watching import Notice
from kube_rdma.model.pools.node_policy import ClusterNodePolicy

NODE_POLICY: ObjectKind[bytes, None] = ObjectKind(
    "kube-rdma.io",
    "v1alpha1",
    "NodePolicy",
    "nodepolicies",
    namespaced=False,
    spec=ObjectCodec(bytes),
    status=NOTHING,
)


def watch_policies(cluster: Cluster) -> AsyncGenerator[Notice[bytes, None], None]:
    """All policies now and whenever one changes; raise Refused when their kind is not served."""
    return cluster.watch(NODE_POLICY)


def policy_of(stored: Stored[bytes, Any]) -> ClusterNodePolicy:
    """The value of an object; raise Refused with all of its faults."""
    from kube_rdma.api.pools import node_policy  # slow to import, and most clusters have no policy

    read = node_policy.load_object(stored.spec, stored.name)
    return replace(read, generation=stored.generation)
