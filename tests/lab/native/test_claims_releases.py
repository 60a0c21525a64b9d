"""Claims on the first release that has them and on the next one: what works there as on the newest.

Kubernetes 1.34 has claims on, and consumable capacity, device taints and claims behind extended
resources off; 1.37 is newer than what other labs run. The tests of test_claims.py run once more,
told to take this cluster for theirs; they ask the server which gates are on.
"""

import json

import pytest

from kube_rdma_lab import cluster
from kube_rdma_lab.release import Release
from tests.groups import own
from tests.lab.conftest import passes_on, up

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=[Release.FIRST_CLAIMS, Release.NEXT])
def release(request):
    return request.param


@pytest.fixture(scope="module")
def lab(release):
    """Two native nodes of the release; KUBE_RDMA_TEST_1_34=NAME takes a running lab.

    For the first one it is that of `kube-rdma lab up --topology kubernetes-1.34`.
    """
    topology = f"kubernetes-{release}"
    command = f"kube-rdma lab up --topology {topology}"
    variable = f"KUBE_RDMA_TEST_{release.replace('.', '_')}"
    with up(own(f"test-{release.replace('.', '-')}"), topology, command, variable) as running:
        yield running


def test_nodes_and_control_plane_are_of_the_release(lab, release):
    version = json.loads(cluster.kubectl(lab, "get", "--raw=/version"))["gitVersion"]
    assert version.startswith(f"v{release}.")
    nodes = cluster.get(lab, "nodes")["items"]
    assert {one["status"]["nodeInfo"]["kubeletVersion"] for one in nodes} == {version}


def test_claims_work_as_on_the_newest_release(lab):
    passes_on(lab, "tests/lab/native/test_claims.py")
