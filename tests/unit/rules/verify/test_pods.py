"""Which devices a pod measures with; nothing that a pod says breaks it, or becomes a command."""

import json
import re
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Refused
from kube_rdma.model.verify.bandwidth import PerftestRun, PodDevice
from kube_rdma.rules.verify.perftest import perftest_words
from kube_rdma.rules.verify.pods import OWN_STATUS, PORT_RATES, PROBE, names_devices, paired_pod

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
    annotations = {OWN_STATUS: json.dumps(networks)} if networks else {}
    return paired_pod(pod(**annotations), answer).devices


def test_networks_of_kube_rdma_say_device_gid_and_address():
    entry = {"interface": "net1", "rdmaDevice": "rxe-1", "gidIndex": 2, "ips": ["192.0.2.7/24"]}
    assert devices(SOFT, entry) == (PodDevice("rxe-1", 1, 2, "192.0.2.7"),)


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
    document = pod(**{OWN_STATUS: annotation})
    assert names_devices(document) is named
    if named:
        assert paired_pod(document, "").devices[0].name == "mlx5_0"
    else:
        with pytest.raises(Refused, match="no RDMA device of its own"):
            paired_pod(document, "")
    assert not names_devices(pod())


def test_the_rates_of_ports_need_no_input_and_no_program():
    """The shell alone reads them, on this machine too, whether it has such ports or not."""
    done = subprocess.run(
        ["sh", "-c", PORT_RATES],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    assert not done.stderr
    assert all(re.match(r"port \S+ \d+ (card|soft) ", line) for line in done.stdout.splitlines())
    assert PROBE.startswith(PORT_RATES)


@pytest.mark.parametrize("answer", ["", CARDS, "{}", '{"UCX_NET_DEVICES": ""}'])
def test_a_pod_without_a_device_is_refused(answer):
    with pytest.raises(Refused, match="no RDMA device of its own"):
        devices(answer)


def test_a_pod_that_does_not_run_is_refused():
    waiting = pod() | {"status": {"phase": "Pending"}}
    with pytest.raises(Refused, match="does not run"):
        paired_pod(waiting, "")


@given(JSONS, JSONS, st.text())
def test_nothing_that_a_pod_says_breaks_it(annotation, variables, text):
    """It becomes words of a command line, never options or a shell's own signs."""
    document = pod(**{OWN_STATUS: json.dumps(annotation)})
    try:
        pods_own = paired_pod(document, f"{text}\n{json.dumps(variables)}").devices
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
