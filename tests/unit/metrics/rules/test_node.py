"""The series of devices, held against what node_exporter makes of the same files."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_rdma.metrics.rules import families
from kube_rdma.metrics.rules.series import device_series, pod_device_series, scaled
from kube_rdma.model.device import PciAddress, PcieLink
from kube_rdma.model.metrics import DeviceCounters, HolderName, MetricNames, PortCounters

NODE, VKE = (MetricNames.NODE_EXPORTER,), (MetricNames.VKE,)
COUNTS = st.integers(min_value=0, max_value=(1 << 64) - 1)
FILES = st.dictionaries(st.sampled_from(sorted(families.OF_NODE)), COUNTS)


def device(counters=None, hw_counters=None, **further):
    port = PortCounters(1, 4, 5, 100.0, counters or {}, hw_counters or {}, **further)
    return DeviceCounters("mlx5_0", (port,), "MT_1", "20.1", "MT4123")


def by_name(series):
    """Values by name and labels; each is there once."""
    values = {}
    for one in series:
        key = (one.family.name, one.labels)
        assert key not in values
        values[key] = one.value
    return values


def test_a_card_as_node_exporter_has_it():
    """The figures of node_exporter's own test of a card (collector/fixtures, mlx4_0 port 1)."""
    counters = {
        "port_rcv_data": 2221223609,
        "port_xmit_data": 26509113295,
        "port_rcv_packets": 87169372,
        "link_downed": 0,
        "port_xmit_wait": 3599,
    }
    series = by_name(device_series([device(counters, {"lifespan": 10, "np_cnp_sent": 3})], NODE))
    at = ("mlx5_0", "1")
    assert series == {
        ("node_infiniband_info", ("mlx5_0", "MT_1", "20.1", "MT4123")): 1,
        ("node_infiniband_state_id", at): 4,
        ("node_infiniband_physical_state_id", at): 5,
        ("node_infiniband_rate_bytes_per_second", at): 12_500_000_000,
        ("node_infiniband_lifespan_seconds", at): 0,
        ("node_infiniband_port_data_received_bytes_total", at): 8_884_894_436,
        ("node_infiniband_port_data_transmitted_bytes_total", at): 106_036_453_180,
        ("node_infiniband_port_packets_received_total", at): 87169372,
        ("node_infiniband_link_downed_total", at): 0,
        ("node_infiniband_port_transmit_wait_total", at): 3599,
        ("node_infiniband_np_cnp_packets_sent_total", at): 3,
    }


def test_a_link_has_its_lanes_and_speeds_whatever_names_are_chosen():
    card = DeviceCounters("mlx5_0", pcie=PcieLink(PciAddress("0000:81:00.0"), 8, 16.0, 16, 32.0))
    assert by_name(device_series([card], ())) == {
        ("kube_rdma_pcie_lanes", ("mlx5_0",)): 8,
        ("kube_rdma_pcie_most_lanes", ("mlx5_0",)): 16,
        ("kube_rdma_pcie_transfers_per_second", ("mlx5_0",)): 16e9,
        ("kube_rdma_pcie_most_transfers_per_second", ("mlx5_0",)): 32e9,
    }


@given(FILES, FILES)
def test_a_series_for_each_file_and_none_besides(counters, hw_counters):
    """Whatever a driver has: its files are the series, nothing is made up, nothing added."""
    series = list(device_series([device(counters, hw_counters)], NODE))
    names = {one.family for one in series if one.family in families.OF_NODE.values()}
    present = {f for f in counters if f not in families.HARDWARE}
    present |= {f for f in hw_counters if f in families.HARDWARE}
    assert names == {families.OF_NODE[file] for file in present}
    by_name(series)


@given(COUNTS)
def test_a_wrap_goes_through(value):
    """Of 64 bits, as the file and as node_exporter have it."""
    assert scaled("port_rcv_data", value) == value * 4 % (1 << 64)
    assert scaled("port_rcv_packets", value) == value


def test_a_counter_without_a_name_is_the_drivers_own():
    assert by_name(device_series([device(hw_counters={"sent_pkts": 5}, gids=3)], ())) == {
        ("kube_rdma_hw_stat", ("mlx5_0", "1", "sent_pkts")): 5,
        ("kube_rdma_port_gids", ("mlx5_0", "1")): 3,
    }


def test_the_names_of_vke_are_a_choice():
    files = {"port_rcv_data": 1, "port_xmit_packets": 2}
    hardware = {"np_cnp_sent": 3, "out_of_buffer": 4}
    series = by_name(device_series([device(files, hardware)], VKE))
    at = ("mlx5_0", "1")
    assert series == {
        ("rdma_exporter_node_infiniband_port_data_received_bytes_total", at): 4,
        ("rdma_exporter_node_infiniband_port_packets_transmitted_total", at): 2,
        ("rdma_exporter_node_infiniband_np_cnp_sent_total", at): 3,
    }


def test_a_port_that_says_nothing_has_no_series():
    silent = DeviceCounters("rxe0", (PortCounters(1),))
    assert [one.family for one in device_series([silent], NODE)] == [families.INFO]


def test_a_containers_own_device():
    files = {"port_rcv_data": 1, "symbol_error": 9}
    holder = HolderName("ns", "train-0", "worker")
    hardware = {"out_of_sequence": 2, "duplicate_request": 3, "sent_bytes": 7}
    series = by_name(pod_device_series(holder, device(files, hardware)))
    at = ("ns", "train-0", "worker", "mlx5_0", "1")
    assert series == {
        ("kube_rdma_pod_state_id", at): 4,
        ("kube_rdma_pod_rate_bytes_per_second", at): 12_500_000_000,
        ("kube_rdma_pod_port_data_received_bytes_total", at): 4,
        ("kube_rdma_pod_out_of_sequence_packets_received_total", at): 2,
        ("kube_rdma_pod_hw_stat", (*at, "sent_bytes")): 7,
    }


def test_every_family_has_a_name_of_its_own():
    names = [family.name for family in families.FAMILIES]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("family", families.FAMILIES, ids=lambda family: family.name)
def test_names_say_their_type_and_labels_are_bounded(family):
    """As Prometheus recommends: counters end with _total, and nothing else does."""
    assert family.name.endswith("_total") == (family.kind == "counter")
    assert len(family.labels) <= 7
    assert len(family.meaning.split()) <= 25
