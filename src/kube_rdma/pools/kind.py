"""Defines the kind NodePolicy as agents follow it; reports/cluster reads its status too.

The spec is kept as bytes, for messages about faults need the object's name.
"""

from __future__ import annotations

from typing import Any

from kube_base.frozen import replace
from kube_client.kinds import NOTHING, ObjectCodec, Stored
from kube_rdma.adapters.cluster.kinds.own import own_kind
from kube_rdma.model.pools import ClusterNodePolicy

_AS_IT_IS: ObjectCodec[bytes] = ObjectCodec(bytes)
# Without its status, for one that changes is no news for agents.
NODE_POLICY = own_kind("NodePolicy", "nodepolicies", _AS_IT_IS, NOTHING)


def policy_of(stored: Stored[bytes, Any]) -> ClusterNodePolicy:
    """Return the policy that a stored NodePolicy means; raise Refused with all of its faults."""
    from kube_rdma.pools.documents import node_policy

    read = node_policy.load_object(stored.spec, stored.name)
    return replace(read, generation=stored.generation)
