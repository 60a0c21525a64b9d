"""`kube-rdma explain` of a pod whose cards come by claims: from the claim to the interface."""

import json

from kube_rdma.adapters.cluster.kinds.pod import DAEMON_SETS
from kube_rdma.adapters.cluster.kinds.resource_slice import RESOURCE_CLAIM
from kube_rdma.model.claims.devices import DRIVER
from tests.kit import explained as kit
from tests.unit.cli.test_explain import run

CLAIM = "worker-0-nic-x7"


def server(*results, parameters=None):
    """A cluster whose claim of the pod has these devices."""
    made = kit.server(mode="shared-multi", shares=8)
    made.add(RESOURCE_CLAIM)
    document = {"apiVersion": "kube-rdma.io/v1alpha1", "kind": "ClaimParameters"}
    config = [
        {
            "source": "FromClaim",
            "opaque": {"driver": DRIVER, "parameters": {**document, **(parameters or {})}},
        }
    ]
    devices = {"results": list(results), "config": config if parameters else []}
    status = {"allocation": {"devices": devices}} if results else {}
    metadata = {"name": CLAIM, "namespace": "default"}
    made.put(RESOURCE_CLAIM, {"metadata": metadata, "spec": {}, "status": status})
    pod = kit.pod(phase="Pending")
    pod["spec"]["resourceClaims"] = [{"name": "nic", "resourceClaimTemplateName": "nic"}]
    pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": "nic"}]}
    pod["status"]["resourceClaimStatuses"] = [{"name": "nic", "resourceClaimName": CLAIM}]
    kit.put_pod(made, pod)
    return made


def device(name, driver=DRIVER, request="nic"):
    return {
        "request": request,
        "driver": driver,
        "pool": "node-1",
        "device": name,
        "shareID": "5b0e8b0a-1111-2222-3333-444455556666",
        "consumedCapacity": {"slots": "1"},
    }


def document(made):
    return json.loads(run(made, "pod/worker-0", "--json").stdout)


def test_a_claims_device_is_followed_to_the_interface_and_its_steps():
    wanted = {"network": "rail-net", "interface": "rdma0"}
    gpu = device("gpu-0", "gpu.example.com", "gpu")
    made = server(device("0000-81-00-0"), gpu, parameters=wanted)
    whole = document(made)
    (claim,) = whole["asked"]["claims"]
    assert (claim["name"], claim["claim"]) == ("nic", CLAIM)
    assert claim["means"] == (
        "gpu: gpu-0 of gpu.example.com; "
        f"nic: 0000-81-00-0 of {DRIVER}, mlx5_1 (0000:81:00.0), interface rdma0 of the pod"
    )
    (granted,) = whole["granted"]
    assert (granted["card"], granted["container"], granted["sure"]) == (
        "0000:81:00.0",
        "main",
        True,
    )
    (plan,) = whole["interfaces"]
    assert (plan["interface"], plan["network"]) == ("rdma0", "default/rail-net")
    assert any("ens1f0" in step for step in plan["steps"])
    assert whole["obstacles"] == []
    assert "claim nic" in run(made, "pod/worker-0").stdout


def test_what_the_agent_will_refuse_is_in_its_own_words():
    whole = document(server(device("0000-ff-00-0")))
    (obstacle,) = whole["obstacles"]
    assert obstacle["stage"] == "agent"
    assert "device 0000-ff-00-0 has vanished from node node-1" in json.dumps(obstacle)
    assert whole["refused"]


def test_wrong_parameters_are_in_the_way():
    whole = document(server(device("0000-81-00-0"), parameters={"speed": 400}))
    (obstacle,) = whole["obstacles"]
    assert obstacle["where"].endswith("parameters of the claim, config[0]: speed")
    assert "there is no such field" in obstacle["problem"]


def test_what_a_claim_says_without_anybodys_leave_is_in_the_way():
    made = server(
        device("0000-81-00-0"), parameters={"type": "macvlan", "addresses": ["10.20.0.5/24"]}
    )
    told = run(made, "pod/worker-0")
    assert told.exit_code == 1
    assert "a claim can say addresses only beside network or pool" in " ".join(told.stdout.split())


def test_a_network_of_other_tenants_is_in_the_way_of_a_claim_too():
    made = server(device("0000-81-00-0"), parameters={"network": "other/storage"})
    container = {"image": "kube-rdma:1", "args": ["agent", "--namespace-isolation=shared"]}
    spec = {"template": {"spec": {"containers": [container]}}}
    made.put(DAEMON_SETS, {"metadata": {"name": "agent", "namespace": "kr"}, "spec": spec})
    told = " ".join(run(made, "pod/worker-0").stdout.split())
    assert "the network other/storage is for pods of other" in told


def test_a_claim_without_devices_is_the_schedulers_to_allocate():
    whole = document(server())
    (obstacle,) = whole["obstacles"]
    assert (obstacle["stage"], obstacle["fatal"]) == ("scheduler", False)
    assert f"kube-rdma explain claim/default/{CLAIM} says why" in json.dumps(obstacle)
    assert whole["asked"]["claims"][0]["means"] == "not allocated"


def test_a_claim_that_is_not_there_is_told():
    made = server()
    made.remove(RESOURCE_CLAIM, CLAIM, "default")
    assert "there is no such ResourceClaim" in json.dumps(document(made)["obstacles"])
