"""Claims on the first release that has them and on the next one: what works there as on the newest.

Kubernetes 1.34 has claims on, and consumable capacity, device taints and claims behind extended
resources off; 1.37 is newer than what other labs run. The tests of test_claims.py run once more,
told to take this cluster for theirs; they ask the server which gates are on.
"""

import json

import pytest

from kube_rdma_lab import cluster, waiting
from kube_rdma_lab.release import Release
from tests.documents.shell import Shell
from tests.groups import own
from tests.kit import manifests
from tests.kit.pods import sleeping_pod
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


def test_repair_works_as_on_the_newest_release(lab):
    passes_on(lab, "tests/lab/native/test_repair.py", "tests/lab/native/test_repair_cards.py")


DRIVER, NODE, CLAIMS = "made-up.test", "node-1", "resource.k8s.io/v1"
POOL = {"name": NODE, "generation": 1, "resourceSliceCount": 1}
CARDS = {"driver": DRIVER, "nodeName": NODE, "pool": POOL, "devices": [{"name": "card"}]}
OF_DRIVER = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
ASKED = {"requests": [{"name": "card", "exactly": {"deviceClassName": DRIVER}}]}
TAINT = {"key": "made-up.test/cable", "value": "flaps", "effect": "NoSchedule"}
RULE = manifests.manifest(
    CLAIMS,
    "DeviceTaintRule",
    "bad-card",
    {"deviceSelector": {"driver": DRIVER, "device": "card"}, "taint": TAINT},
)


def explained(lab):
    """The page on the claim, in one line, and the code of the command."""
    with Shell({"KUBECONFIG": str(lab.kubeconfig)}) as shell:
        code, printed = shell.run("kube-rdma explain claim/made-up")
    return code, " ".join(printed.split())


def scheduled(lab):
    """The scheduler's word on the pod of the claim: True or False; nothing at first."""
    conditions = cluster.get(lab, "pod", "made-up").get("status", {}).get("conditions", ())
    return next((one["status"] for one in conditions if one["type"] == "PodScheduled"), None)


@pytest.fixture
def card(lab):
    """A card of a driver that nobody runs, with its class, and a claim of it."""
    made = (
        manifests.manifest(CLAIMS, "DeviceClass", DRIVER, {"selectors": [OF_DRIVER]}),
        manifests.manifest(CLAIMS, "ResourceSlice", "made-up", CARDS),
        manifests.manifest(CLAIMS, "ResourceClaim", "made-up", {"devices": ASKED}),
    )
    cluster.apply(lab, *made)
    yield
    names = (f"{one['kind']}/{one['metadata']['name']}" for one in made)
    cluster.kubectl(lab, "delete", "pod", "made-up", "--force", "--ignore-not-found")
    cluster.kubectl(lab, "delete", "--ignore-not-found", *names)


def test_a_rule_of_taints_counts_for_explain_as_for_the_scheduler(lab, release, card):
    """From 1.37 on rules are on (KEP-5055); 1.34 serves none, and nothing is said of any."""
    code, page = explained(lab)
    assert code == 0
    assert "TaintRule" not in page
    is_served = release == Release.NEXT
    if is_served:
        cluster.apply(lab, RULE)
        code, page = explained(lab)
        assert code == 1
        assert "1 is tainted by DeviceTaintRule bad-card (made-up.test/cable=flaps" in page
    claims = [{"name": "card", "resourceClaimName": "made-up"}]
    cluster.apply(lab, sleeping_pod("made-up", resourceClaims=claims))
    word = waiting.until(lab, "the scheduler's word", lambda: scheduled(lab))
    assert word == ("False" if is_served else "True")
    if is_served:
        cluster.kubectl(lab, "delete", "devicetaintrule", "bad-card")
        assert waiting.until(lab, "a free card", lambda: scheduled(lab) == "True")
    code, page = explained(lab)
    assert code == 0
    assert "1 device, of pool node-1" in page
