"""CNI documents: what comes in becomes a Call, what goes out is what its version knows."""

import json
from ipaddress import ip_address, ip_interface, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Broken, Refused, Unavailable
from kube_rdma.adapters.cni import protocol as wire
from kube_rdma.model.attach import cni
from kube_rdma.model.attach.cni import ANNOTATIONS
from kube_rdma.model.late_binding import PodName

PREVIOUS = {
    "cniVersion": "1.1.0",
    "interfaces": [
        {"name": "veth1", "mac": "0e:00:00:00:00:01"},
        {"name": "eth0", "sandbox": "/run/netns/a", "mtu": 1450, "pciID": "0000:81:00.2"},
    ],
    "ips": [{"address": "10.1.2.3/24", "gateway": "10.1.2.1", "interface": 1}],
    "routes": [{"dst": "0.0.0.0/0", "gw": "10.1.2.1", "table": 0}],
    "dns": {"nameservers": ["10.96.0.10"], "search": None},
    "of.somebody/else": {"kept": [1, 2.5, None]},
}
OURS = cni.CniResult(
    (cni.CniInterface("net1", "02:00:00:00:00:01", "/run/netns/a", 9000, pci="0000:81:00.3"),),
    (cni.LinkAddress(ip_interface("192.168.1.5/24"), ip_address("192.168.1.1"), 0),),
    (cni.LinkRoute(ip_network("192.168.0.0/16"), ip_address("192.168.1.1"), table=101, scope=0),),
)


def environment(**changes):
    values = {
        "CNI_COMMAND": "ADD",
        "CNI_CONTAINERID": "c0ffee",
        "CNI_NETNS": "/run/netns/a",
        "CNI_IFNAME": "eth0",
        "CNI_ARGS": "K8S_POD_NAMESPACE=ml;K8S_POD_NAME=a-0;K8S_POD_UID=u-1;IgnoreUnknown=1",
        "CNI_PATH": "/opt/cni/bin",
        **changes,
    }
    return b"".join(f"{key}={value}\0".encode() for key, value in values.items() if value)


def config(**changes):
    return json.dumps({"cniVersion": "1.1.0", "name": "pods", **changes}).encode()


def add(version="1.1.0", previous=None):
    values = {"prevResult": previous} if previous else {}
    return wire.decode(environment(), config(cniVersion=version, **values), 7)


def test_an_add_is_a_value():
    """Pod, sandbox, interface, namespace and previous result are typed; the rest stays beside."""
    text = config(prevResult=PREVIOUS, type="kube-rdma", deviceID="0000:81:00.2")
    call = wire.decode(environment(), text, 7)
    assert call.verb is cni.Verb.ADD
    assert (call.version, call.network, call.config) == ("1.1.0", "pods", text)
    assert (call.container, call.interface) == ("c0ffee", "eth0")
    assert (call.netns, call.netns_path) == (7, "/run/netns/a")
    assert (call.pod, call.uid) == (PodName("ml", "a-0"), "u-1")
    assert call.args[-1] == ("IgnoreUnknown", "1")
    assert call.previous == cni.CniResult(
        (
            cni.CniInterface("veth1", "0e:00:00:00:00:01"),
            cni.CniInterface("eth0", "", "/run/netns/a", 1450, pci="0000:81:00.2"),
        ),
        (cni.LinkAddress(ip_interface("10.1.2.3/24"), ip_address("10.1.2.1"), 1),),
        (cni.LinkRoute(ip_network("0.0.0.0/0"), ip_address("10.1.2.1"), table=0),),
        cni.Dns(("10.96.0.10",)),
    )


def test_a_delete_needs_no_namespace():
    """A pod's namespace may be gone, and its names unknown."""
    call = wire.decode(environment(CNI_COMMAND="DEL", CNI_NETNS="", CNI_ARGS=""), config(), None)
    assert (call.verb, call.netns, call.pod, call.args) == (cni.Verb.DEL, None, None, ())


def test_a_collection_says_what_is_valid():
    """GC names no container; the attachments to leave are in the configuration."""
    valid = [{"containerID": "a", "ifname": "eth0"}, {"containerID": "b", "ifname": "net1"}]
    text = config(**{"cni.dev/valid-attachments": valid})
    call = wire.decode(b"CNI_COMMAND=GC\0", text, None)
    assert call.valid == (cni.CniAttachment("a", "eth0"), cni.CniAttachment("b", "net1"))


@pytest.mark.parametrize(
    ("variables", "text", "code"),
    [
        ({"CNI_COMMAND": "MOVE"}, config(), 4),
        ({"CNI_COMMAND": ""}, config(), 4),
        ({"CNI_CONTAINERID": ""}, config(), 4),
        ({"CNI_CONTAINERID": "../x"}, config(), 4),
        ({"CNI_IFNAME": "a/b"}, config(), 4),
        ({"CNI_IFNAME": ".."}, config(), 4),
        ({"CNI_IFNAME": "sixteen-letters!"}, config(), 4),
        ({"CNI_NETNS": ""}, config(), 4),
        ({"CNI_ARGS": "K8S_POD_NAME"}, config(), 4),
        ({}, b"", 6),
        ({}, b"{", 6),
        ({}, b"[1]", 6),
        ({}, b'{"cniVersion": 1}', 6),
        ({}, b"[" * 100_000, 6),
        ({}, config(prevResult={"ips": [{"address": "here"}]}), 6),
        ({}, config(prevResult={"ips": [{"address": "10.0.0.1/99"}]}), 6),
        ({}, config(cniVersion="0.2.0"), 1),
        ({}, config(cniVersion="2.0.0"), 1),
    ],
)
def test_what_the_specification_forbids_has_its_code(variables, text, code):
    """Each is refused with a remedy, and the code that the specification has for the place."""
    with pytest.raises(Refused) as caught:
        wire.decode(environment(**variables), text, 7)
    assert caught.value.remedy
    assert code_of(environment(**variables), text) == code


def code_of(variables, text):
    try:
        wire.decode(variables, text, 7)
    except Refused as error:
        return json.loads(wire.failure(error, wire.version_of(text)))["code"]
    return 0


@given(st.binary(), st.binary())
def test_any_bytes_are_a_call_or_a_refusal(variables, text):
    assert code_of(b"CNI_COMMAND=STATUS\0" + variables, text) in {0, 1, 4, 6}


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(["cniVersion", "prevResult", "ips", "address", "dns", "x"]), inner
            )
        ),
    )
)
def test_any_json_is_a_call_or_a_refusal(document):
    """Wrong types at any depth are refused."""
    assert code_of(environment(), json.dumps(document).encode()) in {0, 1, 6}


def test_ours_goes_behind_what_was_there():
    """Every key of the previous result stays; the index of our interface counts on."""
    document = json.loads(wire.encode(add(previous=PREVIOUS), OURS))
    assert document["interfaces"][:2] == PREVIOUS["interfaces"]
    assert document["interfaces"][2] == {
        "name": "net1",
        "mac": "02:00:00:00:00:01",
        "sandbox": "/run/netns/a",
        "mtu": 9000,
        "pciID": "0000:81:00.3",
    }
    assert document["ips"] == [
        *PREVIOUS["ips"],
        {"address": "192.168.1.5/24", "gateway": "192.168.1.1", "interface": 2},
    ]
    assert document["routes"][1] == {
        "dst": "192.168.0.0/16",
        "gw": "192.168.1.1",
        "table": 101,
        "scope": 0,
    }
    assert document["dns"] == PREVIOUS["dns"]
    assert document["of.somebody/else"] == PREVIOUS["of.somebody/else"]


def test_the_caller_is_known_by_its_configuration():
    """Its type, and the mark of our own entry, which is true and nothing like it."""
    assert (add().plugin, add().marked) == ("kube-rdma", False)
    call = wire.decode(environment(), config(type="macvlan", chain=True), 7)
    assert (call.plugin, call.marked) == ("macvlan", True)
    assert not wire.decode(environment(), config(chain=1), 7).marked


@pytest.mark.parametrize(
    ("facts", "annotations"),
    [
        (
            {"chain": True, "runtimeConfig": {ANNOTATIONS: {"b": "2", "a": "1"}}},
            (("a", "1"), ("b", "2")),
        ),
        ({"chain": True, "runtimeConfig": {ANNOTATIONS: None}}, ()),
        ({"chain": True, "runtimeConfig": {"ips": []}}, None),
        ({"chain": True}, None),
        ({"runtimeConfig": {ANNOTATIONS: {"a": "1"}}}, None),
    ],
)
def test_the_annotations_of_the_pod_come_with_our_entry(facts, annotations):
    """None of them is another thing than not being told."""
    assert wire.decode(environment(), config(**facts), 7).annotations == annotations


def test_addresses_for_another_plugin_are_just_these():
    """What was made before that plugin is its own affair."""
    text = config(type="macvlan", prevResult=PREVIOUS)
    given = cni.CniResult(addresses=(cni.LinkAddress(ip_interface("10.0.0.9/24")),))
    document = json.loads(wire.encode(wire.decode(environment(), text, 7), given))
    assert document == {"cniVersion": "1.1.0", "ips": [{"address": "10.0.0.9/24"}]}


def test_an_empty_result_changes_nothing():
    """A pod that asks for nothing gets just what it had."""
    assert json.loads(wire.encode(add(previous=PREVIOUS), cni.CniResult())) == PREVIOUS


@pytest.mark.parametrize("version", ["0.3.1", "0.4.0", "1.0.0"])
def test_older_versions_get_what_they_know(version):
    """Before 1.0.0 an address says its family; before 1.1.0 there is no mtu and no table."""
    document = json.loads(wire.encode(add(version), OURS))
    assert document["cniVersion"] == version
    assert set(document["interfaces"][0]) == {"name", "mac", "sandbox"}
    assert document["ips"][0].get("version") == ("4" if version < "1" else None)
    assert set(document["routes"][0]) == {"dst", "gw"}


def test_an_answer_can_be_read_again():
    """What is encoded in the newest version decodes to the same value."""
    dns = cni.Dns(("10.0.0.1",), "a", ("b",), ("c",))
    result = cni.CniResult(OURS.links, OURS.addresses, OURS.routes, dns)
    assert add(previous=json.loads(wire.encode(add(), result))).previous == result


def test_errors_are_told_by_blame():
    """Refused, Unavailable and Broken have codes of their own; STATUS says that no ADD succeeds."""
    assert json.loads(wire.failure(Unavailable("Down."), "1.1.0"))["code"] == 11
    assert json.loads(wire.failure(Unavailable("Down."), "1.1.0", cni.Verb.STATUS))["code"] == 50
    assert json.loads(wire.failure(Broken("Other."), "1.1.0"))["code"] == 100
    assert json.loads(wire.failure(None, ""))["code"] == 101
    two = Refused("a", remedy="b", where="c", more=(Refused("d", remedy="e"),))
    document = json.loads(wire.failure(two, "0.4.0"))
    assert (document["cniVersion"], document["code"]) == ("0.4.0", 7)
    assert (document["msg"], document["details"]) == ("c: a", "b.\nd. e.")
