"""Seed S4 on InfiniBand: the example's own documents on made-up cards, for no emulator has any.

The lab replays the example on Ethernet (tests/lab/machines/test_training.py). What differs on
InfiniBand, its network and the GUIDs of its functions, is run here as it is written.
"""

import json
import re
from ipaddress import ip_network
from pathlib import Path

import pytest
import yaml

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_rdma.adapters.kernel.sriov.functions import settings
from kube_rdma.ipam import ip_pool
from kube_rdma.lib.text.reader import read
from kube_rdma.model.device import is_usable_guid
from kube_rdma.model.pools import Attach, Mode
from kube_rdma.pools.documents import node_policy
from kube_rdma.pools.rules.modes import terms
from kube_rdma_testing.ipam import FakeAddresses
from tests.unit.attach.network_world import World, card, share

EXAMPLE = Path(__file__).parents[3] / "examples/s4-infiniband"
RESOURCE = "rdma/vf"
ZEROS = ":".join(["00"] * 8)


def documents(name):
    found = yaml.safe_load_all((EXAMPLE / name).read_text(encoding="utf-8"))
    return {one["kind"]: one for one in found}


def policy():
    text = documents("agent.yaml")["ConfigMap"]["data"]["policy.yaml"]
    return node_policy.load(read(text.encode(), "policy.yaml"))


def node(folder, number, pod, *, ours=True):
    """Node `number`, whose pod is to have its networks; its function is fresh, as mlx5 makes it.

    Not `ours`: somebody else made it, and gave it no GUID.
    """
    virtual = card(0, virtual=True, wide=True)
    network, pool = (documents("network-infiniband.yaml")[kind] for kind in KINDS)
    annotation = network["metadata"]["annotations"]["k8s.v1.cni.cncf.io/resourceName"]
    networks = {"default/training": (annotation, network["spec"]["config"])}
    found = World(folder, [virtual], [], networks)
    above = found.kernel.named(found.kernel.node, "pf10")
    above.mac = f"00:00:11:22:fe:80:00:00:00:00:00:00:0c:42:a1:03:00:00:00:{number:02x}"
    given = settings(above.interface(), 0) if ours else None
    guid = given.node_guid if given else ZEROS
    above.functions[0] = replace(above.functions[0], node_guid=guid, port_guid=guid)
    (link,) = [one for one in found.kernel.links if one.pci == virtual.pci]
    link.mac, found.kernel.rdma[0].guid = link.mac[:-23] + guid, guid
    digits = guid.replace(":", "")
    shown = ":".join(digits[at : at + 4] for at in range(0, 16, 4))
    bound = replace(virtual, devices=(replace(virtual.devices[0], node_guid=shown),))
    found.node.shares = (share(bound, Mode.SRIOV, RESOURCE),)
    spec = ip_pool.decode(json.dumps(pool["spec"]).encode())
    spec = replace(ip_pool.named(spec, pool["metadata"]["name"]), cooldown=0.0)
    found.giver, found.node.pools = FakeAddresses([spec]), {spec.name: spec}
    found.before = found.on_node()
    found.start()
    found.node.annotations.update(documents(pod)["Pod"]["metadata"]["annotations"])
    found.sandbox()
    return found, guid


KINDS = ("NetworkAttachmentDefinition", "IPPool")
PODS = ("training-pod-1.yaml", "training-pod-2.yaml")


def test_the_agent_makes_functions_and_binds_them_late():
    """Made by it they have GUIDs; bound late, a pod may ask for another one."""
    made = policy()
    assert [one.count for one in made.functions] == [4]
    assert [(one.resource, terms(one).attach) for one in made.pools] == [(RESOURCE, Attach.AUTO)]
    for pod in PODS:
        (container,) = documents(pod)["Pod"]["spec"]["containers"]
        assert container["resources"]["limits"] == {RESOURCE: 1}


async def test_each_pod_has_a_function_with_a_guid_of_its_own(tmp_path):
    """On the documents as they are, at once and without anything written into the pods."""
    seen = set()
    for number, pod in enumerate(PODS):
        world, guid = node(tmp_path / pod, number, pod)
        await world.add(1)
        links, *_ = world.inside(1)
        mac, *_, addresses = links["net1"]
        assert mac[-23:] == guid
        ((address, _),) = addresses
        assert address in ip_network("192.168.130.0/24")
        assert is_usable_guid(guid)
        (told,) = world.node.told["kube-rdma.io/network-status"]
        assert told["rdmaDevice"] == "mlx5_0"
        above = world.kernel.named(world.kernel.node, "pf10")
        assert above.functions[0].link_state == "enable"
        await world.holds_and_goes(1)
        seen.add(guid)
    assert len(seen) == len(PODS)


async def test_a_function_that_somebody_else_made_needs_a_guid_in_the_pod_s_entry(tmp_path):
    """As the README says; without one the fabric would give the pod no address."""
    world, _ = node(tmp_path, 0, PODS[0], ours=False)
    with pytest.raises(Refused, match=r"ens0f0 has no GUID \(00:00"):
        await world.add(1)
    readme = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    (annotation,) = re.findall(r"cncf\.io/networks: '(.*)'", readme)
    world.ask(annotation)
    await world.add(1)
    (entry,) = json.loads(annotation)
    mac, *_, addresses = world.inside(1)[0]["net1"]
    assert (mac[-23:], len(addresses)) == (entry["infiniband-guid"], 1)
