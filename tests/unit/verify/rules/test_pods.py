"""Which devices a pod measures with; nothing that a pod says breaks it, or becomes a command."""

import json
import re
import subprocess

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kube_base.errors import Refused
from kube_rdma.model.claims.devices import PublishedCard
from kube_rdma.model.pools import Mode
from kube_rdma.model.reports import NodeReport, ReportedCard, ReportedPool
from kube_rdma.model.verify import PerftestRun, PodDevice
from kube_rdma.verify.rules import pods
from kube_rdma.verify.rules.copies import amounts, pod_for
from kube_rdma.verify.rules.perftest import perftest_words

CARDS = "port mlx5_0 1 card 400 Gb/sec (4X NDR)\nport mlx5_1 2 card 100 Gb/sec (4X EDR)\n"
SOFT = "port rxe-1 1 soft 2.5 Gb/sec (1X SDR)\n"
JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(
        st.sampled_from(["rdmaDevice", "gidIndex", "ips", "UCX_NET_DEVICES", "x"]), inner
    ),
)  # fmt: skip


def pod(**annotations):
    metadata = {"name": "p", "namespace": "n", "annotations": annotations}
    return {"metadata": metadata, "spec": {"nodeName": "a"}, "status": {"podIP": "10.0.0.1"}}


def devices(answer, *networks):
    annotations = {pods.OWN_STATUS: json.dumps(networks)} if networks else {}
    return pods.paired_pod(pod(**annotations), answer).devices


@pytest.mark.parametrize(("index", "gid"), [(2, 2), (0, 0), (-1, None)])
def test_networks_of_kube_rdma_say_device_gid_and_address(index, gid):
    entry = {"interface": "net1", "rdmaDevice": "rxe-1", "gidIndex": index, "ips": ["192.0.2.7/24"]}
    assert devices(SOFT, entry) == (PodDevice("rxe-1", 1, gid, "192.0.2.7"),)


def test_rails_stand_in_the_order_of_the_networks():
    entries = ({"rdmaDevice": "mlx5_1"}, {"rdmaDevice": "mlx5_0"}, {"interface": "eth7"})
    assert [(d.name, d.gbps) for d in devices(CARDS, *entries)] == [
        ("mlx5_1", None),  # its port 1 has no rate
        ("mlx5_0", 400.0),
    ]


def test_without_them_the_pod_is_asked():
    answer = f'{CARDS}{{"UCX_NET_DEVICES": "mlx5_0:1,mlx5_1:2", "UCX_IB_GID_INDEX": "3"}}\n'
    assert devices(answer) == (
        PodDevice("mlx5_0", 1, 3, None, 400.0),
        PodDevice("mlx5_1", 2, 3, None, 100.0),
    )


SCRIPT = '{"UCX_NET_DEVICES": "mlx5_0:1,mlx5_1:2", "UCX_IB_GID_INDEX": "3"}\n'
PLACED = "place mlx5_0 0000:81:00.0\nplace mlx5_1 0000:82:00.0\n"
BY_PLACE, BY_NAME = PublishedCard("nic", "0000:82:00.0"), PublishedCard("nic", rdma="mlx5_1")


@pytest.mark.parametrize("card", [BY_PLACE, BY_NAME])
def test_of_cards_by_claims_only_these_count(card):
    """A privileged pod may open every device of its node."""
    answer = f"{PLACED}{CARDS}{SCRIPT}"
    own = pods.paired_pod(pod(), answer, [card]).devices
    assert own == (PodDevice("mlx5_1", 2, 3, None, 100.0),)


def test_a_card_by_a_claim_is_no_reason_to_skip_a_pod_that_the_script_finds_nothing_in():
    answer = f"{PLACED}{CARDS}{{}}"
    assert pods.paired_pod(pod(), answer, [BY_PLACE]).devices == (
        PodDevice("mlx5_1", 2, None, None, 100.0),
    )


def test_cards_of_claims_that_the_pod_does_not_show_say_nothing():
    """GPUs have a place, too."""
    gpu = PublishedCard("gpu-0", "0000:c0:00.0")
    answer = f"{PLACED}{CARDS}{SCRIPT}"
    assert pods.paired_pod(pod(), answer, [gpu]).devices == devices(answer)


def test_networks_of_kube_rdma_count_before_claims():
    document = pod(**{pods.OWN_STATUS: '[{"rdmaDevice": "mlx5_0"}]'})
    own = pods.paired_pod(document, f"{PLACED}{CARDS}", [BY_PLACE]).devices
    assert [one.name for one in own] == ["mlx5_0"]


def test_the_shell_alone_says_where_devices_sit(tmp_path):
    """As `device` of sysfs leads to the function, over links."""
    function = tmp_path / "devices/pci0000:80/0000:81:00.0"
    (function / "infiniband/mlx5_0").mkdir(parents=True)
    (function / "infiniband/mlx5_0/device").symlink_to(function)
    soft = tmp_path / "devices/virtual/rxe0"
    soft.mkdir(parents=True)
    folder = tmp_path / "class/infiniband"
    folder.mkdir(parents=True)
    (folder / "mlx5_0").symlink_to(function / "infiniband/mlx5_0")
    (folder / "rxe0").symlink_to(soft)
    script = pods.PLACES.replace("/sys/", f"{tmp_path}/")
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("place mlx5_0 0000:81:00.0\n", "")


@pytest.mark.parametrize(
    ("annotation", "named"),
    [
        ('[{"rdmaDevice": "mlx5_0"}]', True),
        ('[{"interface": "eth0"}, {"rdmaDevice": "mlx5_0"}]', True),
        ('[{"interface": "eth0"}]', False),
        ('[{"rdmaDevice": "-d"}]', False),
        ("[", False),
        ("", False),
    ],
)
def test_only_a_pod_whose_annotation_has_a_device_is_not_asked_for_devices(annotation, named):
    """Whoever is not asked has one by the annotation: nothing it prints can be needed."""
    document = pod(**{pods.OWN_STATUS: annotation})
    assert pods.names_devices(document) is named
    if named:
        assert pods.paired_pod(document, "").devices[0].name == "mlx5_0"
    else:
        with pytest.raises(Refused, match="no RDMA device of its own"):
            pods.paired_pod(document, "")
    assert not pods.names_devices(pod())


def test_the_rates_of_ports_need_no_input_and_no_program():
    """The shell alone reads them, on this machine too, whether it has such ports or not."""
    done = subprocess.run(
        ["sh", "-c", pods.PORT_RATES],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    assert not done.stderr
    assert all(re.match(r"port \S+ \d+ (card|soft) ", line) for line in done.stdout.splitlines())
    assert pods.PROBE.startswith(pods.PORT_RATES)


@pytest.mark.parametrize("answer", ["", CARDS, "{}", '{"UCX_NET_DEVICES": ""}'])
def test_a_pod_without_a_device_is_refused(answer):
    with pytest.raises(Refused, match="no RDMA device of its own"):
        devices(answer)


def test_a_pod_that_does_not_run_is_refused():
    waiting = pod() | {"status": {"phase": "Pending"}}
    with pytest.raises(Refused, match="does not run"):
        pods.paired_pod(waiting, "")


@given(JSONS, JSONS, st.text())
def test_nothing_that_a_pod_says_breaks_it(annotation, variables, text):
    """It becomes words of a command line, never options or a shell's own signs."""
    document = pod(**{pods.OWN_STATUS: json.dumps(annotation)})
    try:
        answer = f"{text}\n{json.dumps(variables)}"
        pods_own = pods.paired_pod(document, answer, [PublishedCard("nic", rdma=text)]).devices
    except Refused:
        return
    for device in pods_own:
        words = perftest_words(PerftestRun(), device, 18515)
        assert not any(sign in "".join(words) for sign in " ;$`'\"&|<>\n")
        assert not device.name.startswith("-")


@pytest.mark.parametrize("digits", ["9" * 5000, "²", "٣"])
def test_numbers_that_are_none_are_passed_over(digits):
    """Python refuses to read thousands of digits, and `isdecimal` likes more than ten of them."""
    script = {"UCX_NET_DEVICES": f"mlx5_0:{digits},mlx5_1:2", "UCX_IB_GID_INDEX": digits}
    answer = f"port mlx5_1 {digits} card 100 Gb/sec\nport mlx5_1 2 card {digits} Gb/sec\n"
    assert devices(f"{answer}{json.dumps(script)}") == (PodDevice("mlx5_1", 2),)


# The pod that `verify nodes` makes by itself: it opens all healthy cards of a pool, or none.

HCA, IB = "rdma/hca", "rdma/ib"


def report(mode, reasons, healthy, resource=HCA):
    """A node with a card for each of the reasons, which are empty for healthy ones."""
    cards = tuple(
        ReportedCard(f"pci-{n}", f"mlx5_{n}", (resource,), reasons=(why,) if why else ())
        for n, why in enumerate(reasons)
    )
    bind = "pool" if mode == Mode.HCA else ""
    pool = ReportedPool(resource, mode, healthy, healthy, len(cards), bind=bind)
    return NodeReport("0.1.0", cards=cards, pools=(pool,))


REASONS = st.lists(st.sampled_from(["", "", "its port is down"]), min_size=1, max_size=8)


@given(st.sampled_from(Mode), REASONS, st.integers(0, 40))
@example(Mode.SHARED, [""], 1)
@example(Mode.HCA, ["", ""], 2)
@example("later", ["", ""], 2)
def test_shares_are_never_more_than_are_healthy(mode, reasons, healthy):
    """With more the pod would wait for ever."""
    made = pods.own_pods({"a": report(mode, reasons, healthy)}, "", "image")
    if mode is Mode.SRIOV or not healthy:
        assert not made.by_node
        assert made.left_out["a"]
        return
    (container,) = made.by_node["a"]["spec"]["containers"]
    shares = container["resources"]["limits"][HCA]
    # A report of a moment in which all are ill and some shares healthy says little: all are tried.
    of_cards = min(reasons.count("") or len(reasons), healthy)
    assert shares == (1 if mode is Mode.HCA else of_cards)
    named = {(node, name) for node, name, _ in made.cards}
    assert named == {("a", f"mlx5_{n}") for n, why in enumerate(reasons) if why}


def test_the_pod_is_on_the_node_s_network_and_is_placed_on_tainted_nodes():
    made = pods.own_pods({"a": report("hca", [""], 1000)}, HCA, "registry.example.com/perftest:1")
    spec = pod_for(made.by_node["a"], "a", "run", "file")["spec"]
    assert spec["hostNetwork"] is True
    keys = ("kube-rdma.io/repair", "kube-rdma.io/burn-in")
    repair = [{"key": key, "operator": "Exists"} for key in keys]
    assert spec["tolerations"] == [{"operator": "Exists", "effect": "NoSchedule"}, *repair]
    assert spec["containers"][0]["securityContext"] == {"capabilities": {"add": ["IPC_LOCK"]}}
    assert set(amounts(made.by_node["a"])) == {HCA}


def test_nodes_without_the_resource_are_told():
    reports = {"a": report("hca", [""], 1000), "b": report("hca", [""], 1000, IB)}
    made = pods.own_pods(reports, HCA, "image")
    assert set(made.by_node) == {"a"}
    assert made.left_out == {"b": "its NodeReport has no pool rdma/hca"}


@pytest.mark.parametrize(
    ("reports", "wanted", "words"),
    [
        ({}, "", "no NodeReport has a pool of cards"),
        ({"a": NodeReport("0.1.0")}, HCA, "no NodeReport has a pool of cards"),
        ({"a": report("hca", [""], 1)}, IB, "--resource: no NodeReport has a pool rdma/ib"),
        (
            {"a": report("hca", [""], 1), "b": report("hca", [""], 1, IB)},
            "",
            "the nodes have 2 resources. Choose one with --resource: rdma/hca, rdma/ib.",
        ),
    ],
)
def test_without_one_resource_it_is_refused_with_what_to_do(reports, wanted, words):
    with pytest.raises(Refused) as refusal:
        pods.own_pods(reports, wanted, "image")
    assert words in str(refusal.value)
