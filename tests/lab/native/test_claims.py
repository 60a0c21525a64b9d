"""Cards by ResourceClaims: the real scheduler, kubelet and runtime, and kube-rdma's own driver.

The agents are those of preset default with `claims.enabled`, and claims serve the pools of all
nodes. The cards are constructed, sixteen shares each; interfaces stand on their links, without the
RDMA devices that only real ones have.
"""

import json

import pytest
import yaml

from kube_base.errors import Unavailable
from kube_rdma.claims.rules.prepare import FOLDER
from kube_rdma.model.claims.devices import DRIVER
from kube_rdma_lab import cluster, waiting
from kube_rdma_lab.demo import scc
from tests.kit.claiming import (
    ADDRESS,
    CARDS,
    FAILED,
    NAMESPACE,
    NETWORK,
    NODE,
    SHARES,
    address_of,
    agents,
    applied,
    claim,
    claim_status,
    device_nodes,
    device_of,
    interface,
    network,
    of_template,
    pod,
    slices,
    until_offered,
)
from tests.kit.pods import IMAGE, UNTIL_ASKED

METADATA = f"{FOLDER}/resourceclaimtemplates/nic/nic/{DRIVER}-metadata.json"


@pytest.fixture(scope="module")
def lab(ethernet):
    """The agents, with an address pool and a network."""
    with agents(ethernet) as installed:
        yield installed


def told(lab, name):
    """The addresses that the claim of a pod tells, once its network is ready; none before."""
    (device,) = claim_status(lab, name).get("devices") or [{"conditions": []}]
    ready = {one["type"]: one["status"] for one in device["conditions"]}
    return device["networkData"]["ips"] if ready.get("NetworkReady") == "True" else None


def metadata(lab, name):
    """What a pod reads of the device of its claim, where KEP-5304 has it."""
    text = cluster.kubectl(lab, "exec", name, "--", "cat", METADATA)
    (request,) = json.loads(text)["requests"]
    (device,) = request["devices"]
    assert device["attributes"]["resource.kubernetes.io/pciBusID"]
    return device


def agent(lab):
    """The agent of the node."""
    words = ("-l", "name=kube-rdma-agent", f"--field-selector=spec.nodeName={NODE}")
    listed = cluster.get(lab, "-n", NAMESPACE, "pods", *words)["items"]
    return next(one["metadata"]["name"] for one in listed)


def kill_agent(lab):
    """The agent ends without a word, and another one starts."""
    words = ("pod", agent(lab), "--grace-period=0", "--force")
    cluster.kubectl(lab, "-n", NAMESPACE, "delete", *words)
    cluster.rollout(lab, "kube-rdma-agent", NAMESPACE)


def test_slices_have_the_form_that_the_server_keeps(lab):
    """Devices with many slots where the gate is on; one per share, and a word, where it is off."""
    gate = "DRAConsumableCapacity"
    gate_is_on = is_on(lab, gate)
    devices = [one for devices in slices(lab).values() for one in devices]
    assert any(one.get("allowMultipleAllocations") for one in devices) is gate_is_on
    slots = [int(one["capacity"]["slots"]["value"]) for one in devices]
    assert sum(slots) == CARDS * SHARES
    assert (max(slots) > 1) is gate_is_on
    logs = cluster.kubectl(lab, "-n", NAMESPACE, "logs", agent(lab))
    assert (f"gate={gate}" in logs) is not gate_is_on


def test_pods_by_templates_open_the_device_nodes_of_their_cards(lab, survey):
    """Of the card that the scheduler allocated, and of no other; NCCL is told of just that one."""
    by_address = {one.position.pci: one for one in survey.devices}
    published = {one["name"]: one for devices in slices(lab).values() for one in devices}
    names = [f"by-template-{number}" for number in range(3)]
    documents = [one for name in names for one in of_template(name)]
    with applied(lab, *documents):
        cluster.ready(lab, *names)
        for name in names:
            card = by_address[address_of(published[device_of(lab, name)])]
            files = {char.path.rpartition("/")[2] for char in card.char_devices}
            verbs = {name for name in files if name.startswith("uverbs")}
            assert device_nodes(lab, name) == verbs | {"rdma_cm"}
            settings = cluster.kubectl(lab, "exec", name, "--", "cat", "/etc/nccl.conf")
            assert f"NCCL_IB_HCA=={card.name}:1\n" in settings
            assert metadata(lab, name)["name"] == device_of(lab, name)


def test_the_network_of_the_parameters_is_there_and_given_back(lab):
    """One address, which the claim tells, and the next pod gets when DEL has given it back."""
    wanted = {"network": NETWORK, "addresses": [ADDRESS], "interface": "rdma0", "mtu": 1400}
    documents = of_template("networked", wanted)
    for _ in range(2):
        with applied(lab, *documents):
            cluster.ready(lab, "networked")
            assert f"inet {ADDRESS}/24" in interface(lab, "networked", "rdma0")
            notes = cluster.get(lab, "pod/networked")["metadata"]["annotations"]
            (entry,) = json.loads(notes["kube-rdma.io/network-status"])
            assert (entry["name"], entry["interface"]) == (f"default/{NETWORK}", "rdma0")
            assert entry["mtu"] == 1400
            said = waiting.until(lab, "the status of the claim", lambda: told(lab, "networked"))
            assert said == [f"{ADDRESS}/24"]
            assert metadata(lab, "networked")["networkData"]["ips"] == said


def test_a_claim_takes_no_address_that_nobody_lets_it_have(lab):
    """The scheduler allocates, and the Event of the pod says what is missing."""
    wanted = {"type": "macvlan", "addresses": ["10.20.0.77/24"], "mac": "02:0a:14:00:00:4d"}
    with applied(lab, *of_template("takes", wanted)):
        cluster.until_event(lab, FAILED, "a claim can say addresses only beside network or pool")


def test_an_agent_that_is_killed_between_prepare_and_the_network_goes_on(lab):
    """The pod waits for a network that is not there yet; the claim stays prepared."""
    with applied(lab, *of_template("waiting", {"network": "later", "addresses": [ADDRESS]})):
        cluster.until_event(lab, "FailedCreatePodSandBox", "there is no network default/later")
        kill_agent(lab)
        cluster.apply(lab, network("later"))
        try:
            cluster.ready(lab, "waiting")
            assert ADDRESS in interface(lab, "waiting")
        finally:
            cluster.kubectl(lab, "delete", "network-attachment-definition", "later")


def test_an_agent_that_is_replaced_knows_what_a_running_pod_has(lab):
    """Its address is given back by the new agent, or the next pod could not have it."""
    wanted = {"network": NETWORK, "addresses": [ADDRESS]}
    for name in ("before", "after"):
        with applied(lab, *of_template(name, wanted)):
            cluster.ready(lab, name)
            if name == "before":
                kill_agent(lab)
            assert ADDRESS in interface(lab, name)
            assert device_nodes(lab, name)


def test_a_claim_that_is_made_anew_under_its_name_is_another(lab):
    """And the pod of the new one starts."""
    for _ in range(2):
        with applied(lab, claim("again"), pod("user", resourceClaimName="again")):
            cluster.ready(lab, "user")
            assert device_nodes(lab, "user")


def test_two_pods_of_one_claim_have_its_card(lab):
    """Each with an interface of its own."""
    pods = [pod(name, resourceClaimName="both") for name in ("left", "right")]
    with applied(lab, claim("both", {"network": NETWORK}), *pods):
        cluster.ready(lab, "left", "right")
        assert device_nodes(lab, "left") == device_nodes(lab, "right")
        shown = [interface(lab, name) for name in ("left", "right")]
        assert all("inet 10.77.0." in one for one in shown)
        assert shown[0].split("inet ")[1].split()[0] != shown[1].split("inet ")[1].split()[0]


def is_on(lab, gate):
    """Whether a feature gate of the API server is."""
    metrics = cluster.kubectl(lab, "get", "--raw=/metrics").splitlines()
    head = f'kubernetes_feature_enabled{{name="{gate}"'
    return any(one.startswith(head) and one.endswith(" 1") for one in metrics)


def example(name):
    """The objects of a file of examples/claims; its pod has an image of the lab, and the node."""
    text = (scc.examples() / "claims" / f"{name}.yaml").read_text()
    for document in yaml.safe_load_all(text):
        if document["kind"] == "Pod":
            (container,) = document["spec"]["containers"]
            container |= {"image": IMAGE, "command": list(UNTIL_ASKED)}
            document["spec"]["nodeSelector"] = {"kubernetes.io/hostname": NODE}
        yield document


@pytest.mark.parametrize(
    ("name", "gate", "cards"),
    [("two-rails", "DRAConsumableCapacity", 2), ("fast-or-slow", "DRAPrioritizedList", 1)],
)
def test_an_example_has_the_cards_that_it_says(lab, name, gate, cards):
    if not is_on(lab, gate):
        pytest.skip(f"{gate} is off")
    with applied(lab, *example(name)):
        cluster.ready(lab, name)
        published = {one["name"]: one for devices in slices(lab).values() for one in devices}
        results = claim_status(lab, name)["allocation"]["devices"]["results"]
        given = [published[one["device"]]["attributes"] for one in results]
        assert len({one["rail"]["int"] for one in given}) == cards
        if name == "fast-or-slow":
            assert results[0]["request"] == "card/fast"


def test_a_quota_counts_the_devices_that_claims_ask_for(lab):
    """By the classes of the installation; a claim beyond it is refused by its name."""
    (quota,) = example("quota")
    shares = [claim(f"counted-{number}") for number in range(5)]
    for one in shares:
        one["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = "rdma-shared"
    with applied(lab, quota):
        *most, beyond = shares
        hard = quota["spec"]["hard"]
        waiting.until(lab, "the quota's count", lambda: counted(lab, quota) == hard)
        with applied(lab, *most), pytest.raises(Unavailable, match="exceeded quota: rdma"):
            cluster.apply(lab, beyond)


def counted(lab, quota):
    """The limits that the quota's controller has taken up."""
    name = quota["metadata"]["name"]
    return cluster.get(lab, f"resourcequota/{name}").get("status", {}).get("hard")


def test_a_pod_that_only_looks_opens_a_card_that_another_claim_holds(lab):
    """All cards of the node, in a namespace that allows it; no slot, no interface is its own."""
    space, *looking = example("measuring")
    name = space["metadata"]["name"]
    cluster.apply(lab, space, *looking)
    try:
        with applied(lab, *of_template("holder", {"network": NETWORK})):
            cluster.ready(lab, "holder")
            cluster.ready(lab, "measuring", namespace=name)
            looked = ("ls", "/dev/infiniband", "/sys/class/net")
            words = ("-n", name, "exec", "measuring", "--", *looked)
            listed = cluster.kubectl(lab, *words).split()
            assert device_nodes(lab, "holder") < set(listed)
            assert len([one for one in listed if one.startswith("uverbs")]) == CARDS
            assert "net1" not in listed
            assert "inet 10.77.0." in interface(lab, "holder")
        with applied(lab, *of_template("after", {"network": NETWORK})):
            cluster.ready(lab, "after")
    finally:
        cluster.kubectl(lab, "delete", "namespace", name, "--wait")


def test_a_pod_has_its_control_group_when_its_claims_are_prepared(lab):
    """So the kernel holds it to limits before the kubelet is answered, and no container begins.

    The agent is stopped: the kubelet waits for its answer, and has made the group before.
    """
    signal = "pkill -{} -f '[k]ube-rdma agent'"
    cluster.shell(lab, NODE, signal.format("STOP"))
    try:
        with applied(lab, *of_template("early")):
            uid = cluster.get(lab, "pod/early")["metadata"]["uid"].replace("-", "?")
            found = f"find /sys/fs/cgroup -type d -name '*pod{uid}*' | grep -q ."
            cluster.until_on_node(lab, NODE, found)
            assert not cluster.get(lab, "pod/early")["status"].get("podIP")
            cluster.shell(lab, NODE, signal.format("CONT"))
            cluster.ready(lab, "early")
    finally:
        cluster.shell(lab, NODE, signal.format("CONT"))


def test_the_slices_come_back_after_the_kubelet_restarted(lab):
    """It deletes those of all drivers when it starts."""
    before = slices(lab)
    cluster.shell(lab, NODE, "sv", "-w", "60", "force-restart", "kubelet")
    until_offered(lab, besides=before)
    with applied(lab, *of_template("afterwards")):
        cluster.ready(lab, "afterwards")
