"""kube-rdma in the CNI configurations of other projects: in, called as libcni calls, and out."""

import json
from dataclasses import dataclass
from ipaddress import ip_address, ip_interface, ip_network
from pathlib import Path

import pytest

from kube_rdma.adapters.cni import protocol as wire
from kube_rdma.adapters.cni.conf.folder import FolderTiming, remove
from kube_rdma.attach.rules.conflist import ENTRY, Role, plan, plugins, role, type_of, unplan
from kube_rdma.attach.rules.requests import ANNOTATION
from kube_rdma.model.attach import cni
from tests.kit.libcni import as_given, previous, valid
from tests.unit.adapters.cni.conf.host import Host

FOLDERS = Path(__file__).parents[4] / "data/conflists"
QUICK = FolderTiming(settle=0.0, proof=0.0)


@dataclass(frozen=True)
class Node:
    """What has to become of a node: whose file is the default, in which version, and who calls."""

    default: str
    version: str
    wiring: cni.Wiring = cni.Wiring.CHAIN
    guard: str = ""


NODES = {
    "flannel": Node("10-flannel.conflist", "0.3.1"),
    "calico": Node("10-calico.conflist", "0.3.1"),
    "canal": Node("10-canal.conflist", "0.3.1"),
    "cilium": Node("05-cilium.conflist", "0.3.1", guard="Cilium"),
    "azure": Node("10-azure.conflist", "0.3.0"),
    "azure-overlay": Node("15-azure-swift-overlay.conflist", "0.3.0"),
    "aws": Node("10-aws.conflist", "0.4.0"),
    "terway-old": Node("10-terway.conf", "0.3.0"),
    "terway": Node("10-terway.conflist", "0.4.0", guard="Cilium"),
    "cello": Node("10-cello.conflist", "0.3.1", guard="Cilium"),
    "vke": Node("01-cello-meta.conflist", "0.3.1", cni.Wiring.DELEGATE),
    "ovn-kubernetes": Node("10-ovn-kubernetes.conf", "0.4.0"),
    "openshift": Node("00-multus.conf", "0.3.1", cni.Wiring.DELEGATE),
    "kindnet": Node("10-kindnet.conflist", "0.3.1"),
    "kindnet-networking": Node("10-kindnet.conflist", "0.4.0"),
    "antrea": Node("10-antrea.conflist", "0.3.0"),
    "kube-router": Node("10-kuberouter.conflist", "0.3.0"),
    "gke": Node("10-gke-ptp.conflist", "0.3.1"),
    "gke-dataplane-v2": Node("10-gke-ptp.conflist", "0.3.1", guard="Cilium"),
    "aks-kubenet": Node("10-containerd-net.conflist", "0.3.1"),
    "crio": Node("10-crio-bridge.conflist", "1.0.0"),
    "weave": Node("10-weave.conflist", "0.3.0"),
}
CHAINED = [name for name, node in NODES.items() if node.wiring is cni.Wiring.CHAIN]


def files(name):
    return tuple(
        cni.ConfFile(path.name, path.read_text()) for path in sorted((FOLDERS / name).iterdir())
    )


def called(name):
    """The list by which the runtime calls us there: the default, or ours that stands for it."""
    return json.loads(plan(files(name)).writes[0].text)


def address(text, gateway, link):
    return cni.LinkAddress(ip_interface(text), ip_address(gateway), link)


def route(to, via):
    return cni.LinkRoute(ip_network(to), ip_address(via))


def test_every_folder_is_in_the_table():
    assert {path.name for path in FOLDERS.iterdir() if path.is_dir()} == set(NODES)


@pytest.mark.parametrize("name", NODES)
def test_the_entry_goes_in_and_leaves_no_trace(name):
    """Behind all others, once; when it is out, every file has the bytes that it had."""
    node, before = NODES[name], files(name)
    made = plan(before)
    assert (made.wiring, made.default, made.guard) == (node.wiring, node.default, node.guard)
    after = {file.name: file for file in (*before, *made.writes)}
    default = json.loads(next(file.text for file in before if file.name == node.default))
    assert default["cniVersion"] == node.version
    if node.wiring is cni.Wiring.CHAIN:
        assert called(name)["plugins"] == [*plugins(default), ENTRY]
    assert not plan(tuple(after.values())).changes
    undone = unplan(tuple(after.values()))
    after |= {file.name: file for file in undone.writes}
    assert tuple(file for key, file in after.items() if key not in undone.removes) == before


@pytest.mark.parametrize("name", NODES)
async def test_the_keeper_writes_it_and_uninstall_takes_it_out(name, tmp_path):
    """On a disk, with all plugins of the list in the folder of binaries."""
    host = Host(tmp_path)
    for file in files(name):
        host.put(file.name, file.text)
        host.plugins("bin", *map(type_of, plugins(json.loads(file.text))), "multus")
    before = {path.name: path.read_bytes() for path in host.folder.path.iterdir()}
    async with host.kept(pace=QUICK):
        await host.until(1)
        texts = [path.read_text() for path in host.folder.path.iterdir()]
        chained = sum('"chain": true' in text for text in texts)
        assert chained == (NODES[name].wiring is cni.Wiring.CHAIN)
    (kept,) = host.told
    assert (kept.error, kept.plan.wiring) == (None, NODES[name].wiring)
    remove(host.folder, host.binaries, unplan)
    assert {path.name: path.read_bytes() for path in host.folder.path.iterdir()} == before


@pytest.mark.parametrize("name", CHAINED)
@pytest.mark.parametrize("verb", ["ADD", "DEL", "CHECK"])
def test_a_call_from_there_is_understood(name, verb):
    """As libcni makes it of the list: version, name and previous result are put into our entry."""
    document = called(name)
    environment, text = as_given(document, verb, annotations={ANNOTATION: "rdma"})
    call = wire.decode(environment, text, 7)
    assert (call.version, call.network) == (NODES[name].version, document["name"])
    assert (call.plugin, call.marked, role(call)) == (cni.PLUGIN, True, Role.CHAIN)
    assert call.annotations == ((ANNOTATION, "rdma"),)
    assert call.previous == cni.CniResult(
        (cni.CniInterface("veth1"), cni.CniInterface("eth0", "", "/run/netns/a")),
        (address("10.1.2.3/24", "10.1.2.1", 1), address("fd00::3/64", "fd00::1", 1)),
        (route("0.0.0.0/0", "10.1.2.1"),),
    )


@pytest.mark.parametrize("name", CHAINED)
def test_an_answer_has_the_form_of_its_version(name):
    """What libcni checks when it reads the result again; what was before is all in it."""
    environment, text = as_given(called(name), "ADD", annotations={ANNOTATION: "rdma"})
    call = wire.decode(environment, text, 7)
    ours = cni.CniResult(
        (cni.CniInterface("net1", "02:00:00:00:00:01", "/run/netns/a", 9000),),
        (address("192.168.1.5/24", "192.168.1.1", 0),),
        (route("192.168.0.0/16", "192.168.1.1"),),
    )
    answer = json.loads(wire.encode(call, ours))
    assert valid(answer, NODES[name].version)
    assert answer["ips"][:2] == previous(NODES[name].version)["ips"]
    assert json.loads(wire.encode(call, cni.CniResult())) == previous(NODES[name].version)


@pytest.mark.parametrize("version", ["0.3.0", "0.3.1", "0.4.0"])
def test_a_result_of_later_versions_becomes_one_of_its_own(version):
    """Some runtime hands over what a newer plugin said as it is: families are told before 1.0.0."""
    listed = {"cniVersion": version, "name": "net", "plugins": [{"type": "ptp"}, ENTRY]}
    environment, text = as_given(listed, "ADD", shape="1.1.0")
    answer = json.loads(wire.encode(wire.decode(environment, text, 7), cni.CniResult()))
    assert [one["version"] for one in answer["ips"]] == ["4", "6"]
    assert valid(answer, version)
    assert cni.ANNOTATIONS in json.loads(text)["runtimeConfig"]
