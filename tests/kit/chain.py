"""Takes kube-rdma out of a node's CNI configuration, as a network plugin that restarts does.

For tests that begin where no agent has been: an agent leaves its entry to the one after it.
"""

import base64

from kube_rdma.attach.rules.conflist import without
from kube_rdma_lab import cluster

FOLDER = "/etc/cni/net.d"


def unchain(lab, node):
    """Take it out of each list that has it."""
    for name in cluster.shell(lab, node, f"grep -l kube-rdma {FOLDER}/*.conflist || :").split():
        text = without(cluster.shell(lab, node, f"cat {name}"))
        assert "kube-rdma" not in text
        coded = base64.b64encode(text.encode()).decode()
        cluster.shell(lab, node, f"echo {coded} | base64 -d > {name}.new && mv {name}.new {name}")
