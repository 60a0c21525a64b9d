"""The annotation of networks, as people and as programs in Go write it."""

import json
from functools import partial
from ipaddress import ip_address
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import MOST_FAULTS, Refused
from kube_rdma.attach.documents import pod_networks
from kube_rdma.attach.documents.networks import LONGEST, MOST, MOST_VALUES, asks, load
from kube_rdma.model.attach.attachment import AskedAddress, NetworkAsk
from tests.kit.refusals import assert_written_down, refusal
from tests.unit.attach.documents.bad_networks import NETWORKS, load_bad

GOLDEN = Path(__file__).with_name("network_refusals.txt")


def test_every_sentence_is_written_down():
    assert_written_down(GOLDEN, partial(refusal, load_bad), NETWORKS)


def test_names_with_commas():
    """Namespace and interface may be left out; blanks and line breaks do not count."""
    found = asks(" a, other/b@rdma0 ,\n  c.d", "default")
    assert [(one.namespace, one.network, one.interface, one.source) for one in found] == [
        ("default", "a", "net1", "networks[0]"),
        ("other", "b", "rdma0", "networks[1]"),
        ("default", "c.d", "net3", "networks[2]"),
    ]


@pytest.mark.parametrize("text", ["", "  \n", "[]"])
def test_a_pod_may_ask_for_nothing(text):
    assert asks(text, "default") == ()


def test_every_field_of_an_entry():
    entry = {
        "name": "a",
        "namespace": "other",
        "ips": ["10.0.0.7/24", "fd00::7"],
        "mac": "02:00:0A:00:00:01",
        "infiniband-guid": "02:00:0A:00:00:00:00:01",
        "interface": "rdma0",
        "portMappings": [{"hostPort": 80, "containerPort": 8080, "protocol": "tcp"}],
        "bandwidth": {"ingressRate": 5},
        "deviceID": "0000:81:00.1",
        "cni-args": {"a": [1, {"b": None}]},
        "default-route": ["10.0.0.1", "fd00::1"],
    }
    (found,) = asks(json.dumps([entry]), "default")
    assert found == NetworkAsk(
        namespace="other",
        network="a",
        interface="rdma0",
        source="networks[0]",
        addresses=(AskedAddress(ip_address("10.0.0.7"), 24), AskedAddress(ip_address("fd00::7"))),
        mac="02:00:0a:00:00:01",
        guid="02:00:0a:00:00:00:00:01",
        default_routes=(ip_address("10.0.0.1"), ip_address("fd00::1")),
        device_id="0000:81:00.1",
        arguments=json.dumps(entry["cni-args"]).encode(),
        capabilities=(
            ("portMappings", json.dumps(entry["portMappings"]).encode()),
            ("bandwidth", b'{"ingressRate": 5}'),
        ),
    )


def test_the_guid_that_ib_kubernetes_writes():
    """In the cni-args, with its mark; what is no text there is another plugin's."""
    args = {"guid": "02:00:0A:00:00:00:00:01", "mellanox.infiniband.app": "configured"}
    (found,) = asks(json.dumps([{"name": "a", "cni-args": args}]), "default")
    assert (found.guid, found.argued_guid) == (None, "02:00:0a:00:00:00:00:01")
    assert found.configured
    (other,) = asks('[{"name": "a", "cni-args": {"guid": 7, "mellanox.infiniband.app": "x"}}]', "d")
    assert (other.argued_guid, other.configured) == (None, False)


def test_the_older_name_of_interface():
    """interfaceRequest counts where interface is not given, and beside it when both agree."""
    (old,) = asks('[{"name": "a", "interfaceRequest": "net7"}]', "default")
    (both,) = asks('[{"name": "a", "interfaceRequest": "net7", "interface": "net7"}]', "default")
    assert old == both
    assert old.interface == "net7"


NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,8}[a-z0-9])?", fullmatch=True)
ENTRIES = st.lists(st.tuples(st.none() | NAMES, NAMES), min_size=1, max_size=MOST)


@given(ENTRIES)
def test_both_forms_say_the_same(entries):
    """Names with commas mean what the list of objects means."""
    short = ",".join(f"{space}/{name}" if space else name for space, name in entries)
    long = [{"name": name} | ({"namespace": space} if space else {}) for space, name in entries]
    found = asks(short, "default")
    assert found == asks(json.dumps(long), "default")
    assert len({one.interface for one in found}) == len(entries)


@given(st.text(max_size=60) | st.text('[]{}",:@/%ab\n\\ ', max_size=40))
def test_any_text_is_read_or_refused(text):
    """Nothing that a person may write ends in a traceback."""
    try:
        found = asks(text, "default")
    except Refused:
        return
    assert len({one.interface for one in found}) == len(found) <= MOST


@pytest.mark.parametrize(
    "text",
    [
        "," * 900_000,
        f"[{'{},' * 300_000}{{}}]",
        "[" + "1," * MOST_VALUES + "1]",
        "[" + "[[[]]]," * (MOST_VALUES // 4) + "1]",
        "# [\n" + "- a: b\n" * MOST_VALUES,
        "# [\n" + "- - - 1\n" * MOST_VALUES,
        json.dumps([{"name": "a", "deviceID": "x" * LONGEST}]),
    ],
)
def test_a_flood_is_one_sentence(text):
    """It is not read, neither as JSON nor as YAML; nor is there one for each of its entries."""
    for read in (asks, lambda text, namespace: pod_networks.load(text, "", namespace, "cni")):
        with pytest.raises(Refused, match=r"are read\. Say less in each network") as caught:
            read(text, "default")
        assert caught.value.more == ()


@pytest.mark.parametrize("field", ["ips", "default-route", "portMappings"])
def test_a_flood_of_addresses_is_one_sentence(field):
    text = json.dumps([{"name": "a", field: ["x"] * 257}])
    with pytest.raises(Refused, match="its lists have 257 entries, of which 256 are read"):
        asks(text, "default")


def test_a_flood_of_routes_deep_inside_is_one_sentence():
    routes = {"traffic": {"routes": {"extraRoutes": [{"dst": "x"}] * 257}}}
    with pytest.raises(Refused, match="its lists have 257 entries"):
        pod_networks.load(json.dumps([{"cniConf": {"name": "a"}, **routes}]), "", "a", "cni")


def test_as_many_networks_as_there_may_be_can_say_all_that_they_may():
    entry = {
        "name": "n" * 60,
        "namespace": "s" * 60,
        "ips": ["10.0.0.1/24", "fd00:1111:2222:3333:4444:5555:6666:7777/64"],
        "mac": "02:00:00:00:00:01",
    }
    entries = [{**entry, "interface": f"net{number}"} for number in range(MOST)]
    assert len(asks(json.dumps(entries), "default")) == MOST
    assert len(asks(json.dumps(entries, separators=(",", ":")), "default")) == MOST


def strays(count, **more):
    return json.dumps([{"name": "a", **{f"{n}{'x' * 5}": 1 for n in range(count)}, **more}])


def test_of_very_many_fields_that_nobody_knows_the_first_are_told():
    """Each sentence is a line of the agent's log, at each try."""
    warnings = load(strays(1200), "default").warnings
    assert len(warnings) == MOST_FAULTS + 1
    assert warnings[-1] == "k8s.v1.cni.cncf.io/networks: 1180 more fields are ignored"
    for most in (MOST_FAULTS, MOST_FAULTS + 1):
        assert len(load(strays(most), "default").warnings) == most


def test_the_first_of_very_many_are_compared_with_those_that_are_known():
    with pytest.raises(Refused, match='Did you mean "default-route"'):
        load(strays(15, default_route=[]), "default")
    assert len(load(strays(16, default_route=[]), "default").warnings) == 17


FIELDS = (
    *("namespace", "ips", "mac", "infiniband-guid", "interface", "interfaceRequest"),
    *("portMappings", "bandwidth", "deviceID", "cni-args", "default-route"),
    "ipam-claim-reference",
)
TEXTS = ("namespace", "mac", "infiniband-guid", "interface", "interfaceRequest", "deviceID")


@pytest.mark.parametrize(
    ("field", "value"), [*((one, None) for one in FIELDS), *((one, "") for one in TEXTS)]
)
def test_null_and_an_empty_text_say_nothing(field, value):
    """As if the field were not there, and nobody is warned: the zero values of Go."""
    found = load(json.dumps([{"name": "a", field: value}]), "default")
    assert (found.asks, found.warnings) == (asks("a", "default"), ())


def test_null_inside_of_an_entry_says_nothing():
    ports = [{"hostPort": 80, "containerPort": 8080, "hostIP": None}]
    bandwidth = {"ingressRate": 5, "egressRate": None}
    entry = {"name": "a", "portMappings": ports, "bandwidth": bandwidth}
    (found,) = asks(json.dumps([entry]), "default")
    assert {key: json.loads(value) for key, value in found.capabilities} == {
        "portMappings": [{"hostPort": 80, "containerPort": 8080}],
        "bandwidth": {"ingressRate": 5},
    }


def test_null_in_cni_args_is_the_plugins_business():
    """What is in there goes to them as it is."""
    (found,) = asks('[{"name": "a", "cni-args": {"x": null}}]', "default")
    assert json.loads(found.arguments) == {"x": None}


def test_a_name_is_needed_all_the_same():
    """Null is none, and the empty text is not one."""
    with pytest.raises(Refused, match="the field is missing"):
        load('[{"name": null}]', "default")
    with pytest.raises(Refused, match="is not the name of an object"):
        load('[{"name": ""}]', "default")


def test_a_key_of_nobody_is_passed_over_with_a_warning():
    """At its place; one that is like ours was probably meant, and is refused as ever."""
    text = '[{"name": "a",\n  "x-team": {"b": 1}, "portMappings": [{"hostPort": 1, "zone": 2,'
    found = load(f'{text} "containerPort": 2}}]}}]', "default")
    assert [one.network for one in found.asks] == ["a"]
    assert [one.partition("networks:")[2] for one in found.warnings] == [
        '2:3: networks[0]."x-team": there is no such field, it is ignored',
        "2:56: networks[0].portMappings[0].zone: there is no such field, it is ignored",
    ]
    with pytest.raises(Refused, match='Did you mean "default-route"'):
        load('[{"name": "a", "default_route": ["10.0.0.1"]}]', "default")


def test_a_claim_is_known_and_somebody_elses():
    """It is no fault; that we do nothing with it is said."""
    found = load('[{"name": "a", "ipam-claim-reference": "vm-a"}]', "default")
    (warning,) = found.warnings
    assert warning.endswith("only plugins that read it themselves heed it")
    assert found.asks == asks("a", "default")
