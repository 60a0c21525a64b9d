"""Definitions of networks: what is said where nobody has installed their kind."""

import pytest

from kube_client.errors import NotInstalled
from kube_client.objects import Cluster
from kube_rdma.attach.cluster import NetworkObjects
from kube_rdma_testing.cluster.server import FakeServer


async def test_a_cluster_without_the_kind_is_told_who_brings_it():
    """It is Multus's own: no version of kube-rdma has it among its definitions."""
    with pytest.raises(NotInstalled) as caught:
        await NetworkObjects(Cluster(FakeServer([]).line())).read("default", "nics")
    assert "network-attachment-definitions.k8s.cni.cncf.io" in caught.value.problem
    assert "Install Multus" in caught.value.remedy
    assert "crds.networkAttachmentDefinitions=true" in caught.value.remedy
