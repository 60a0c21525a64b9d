"""Machines that people posted: which interface a port has, and what the doctor says of the node.

The trees are made after the postings that their first lines name, or those of the cases that were
reported against us.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kube_rdma.hardware.recorded_survey import survey_at
from kube_rdma_lab.native.tree_text import unpack
from tests.unit.doctor.test_healthy_machines import found

DATA = Path(__file__).parents[2] / "data"
WELL: list[tuple[str, str, str]] = []
CABLE = "check the cable and the switch port behind"
ENABLE = "ibportstate -C mlx5_{} -D 0 1 enable; if that does not bring the link, check its cable"
BIND = "echo 0000:c4:00.1 > /sys/bus/pci/drivers/mlx5_core/bind"
OF_H100 = """
ibp26s0 enp27s0f0np0 ibp204s0 ibp220s0 enp27s0f1np1 ibp60s0 ibp77s0 ibp94s0 ibp156s0
enp157s0f0np0 enp157s0f1np1 ibp188s0
"""
OF_A100 = """
ibp12s0 ibp18s0 ibp75s0v0 ibp75s0v1 ibp75s0v2 ibp75s0v3 ibp75s0v4 ibp75s0v5 - ibp75s0v7 ibp75s0
ibp141s0v0 ibp141s0v1 ibp141s0v2 ibp141s0v3 ibp141s0v4 ibp141s0v5 ibp141s0v6 - ibp84s0 enp97s0f0
ibp97s0f1 ibp141s0 ibp148s0 ibp186s0 ibp204s0
"""
# By tree: interfaces of devices with one port (of more each, in their order), then what is wrong.
POSTED = [
    (
        "posted/openshift-lag-in-ovs-no-carrier",
        "enp193s0f0np0/bond0 enp1s0f0np0/bond1",
        [("KR121", "mlx5_bond_1", f"{CABLE} enp1s0f0np0")],
    ),
    (
        "posted/bnxt-eight-bonds",
        " ".join(f"eth{2 * card + 1}/bond{card}" for card in range(8)),
        WELL,
    ),
    ("posted/ipoib-bond-connectx3", "ib0/bondib0 ib1/bondib0", WELL),
    ("posted/omnipath-pkey-children", "hfi1_opa0", WELL),
    ("posted/azure-renamed-devices", "ib0 enP23800p0s2", WELL),
    (
        "posted/azure-ib-init",
        f"enP36658s1 {' '.join(f'ib{number}' for number in range(8))}",
        [
            (
                "KR122",
                f"mlx5_ib{number}",
                "the subnet manager at LID 361 has not activated it; its log says why",
            )
            for number in range(8)
        ],
    ),
    (
        "posted/ionic-renamed-no-carrier",
        "enp229s0 enp68s0",
        [("KR121", "rocep229s0", f"{CABLE} enp229s0")],
    ),
    ("posted/bluefield2-arm-subfunctions", "p0 - - - p1 - - - enp3s0f0s0 enp3s0f1s0", WELL),
    (
        "posted/switchdev-host-vfs-in-pods",
        f"enp3s0f0 {'- ' * 9}enp3s0f1 - - enp3s0f0v2 enp3s0f0v3",
        WELL,
    ),
    (
        "posted/chelsio-two-ports-plus-cx5",
        "enp175s0f4 enp175s0f4d1 enp59s0",
        [
            (
                "KR121",
                "cxgb4_0",
                f"{CABLE} enp175s0f4; {CABLE} enp175s0f4d1",
            ),
            ("KR121", "mlx5_0", f"{CABLE} enp59s0"),
        ],
    ),
    (
        "posted/ib-vf-port-down",
        "ibp75s0 -",
        [("KR122", "mlx5_7", "ip link set ibp75s0 vf 0 state auto")],
    ),
    ("posted/vxlan-gids-on-lag", "ens1f0np0/bond1", WELL),
    (
        "posted/arm-infiniband-init-and-no-cable",
        "ib0 ib1",
        [
            ("KR121", "mlx5_0", f"{CABLE} ib0"),
            (
                "KR122",
                "mlx5_1",
                "the cable is fine, but there is no subnet manager; start opensm or ask for one",
            ),
        ],
    ),
    ("posted/gcp-h4d-idpf-irdma", "eth1", WELL),
    (
        "posted/h100-ipoib-down",
        OF_H100,
        WELL,
    ),
    (
        "posted/dgx-a100-infiniband-functions-down",
        OF_A100,
        [
            *(
                (
                    "KR120",
                    f"mlx5_{number}",
                    ENABLE.format(number),
                )
                for number in (1, 3, 7, 9)
            ),
            ("KR122", "mlx5_18", "ip link set ibp75s0 vf 6 state auto"),
            ("KR122", "mlx5_27", "ip link set ibp141s0 vf 7 state auto"),
        ],
    ),
    (
        "posted/second-function-without-driver",
        f"enp196s0f0np0 enp196s0f0v8 enp196s0f0v9 {' '.join(f'enp196s0f0v{n}' for n in range(8))}",
        [
            (
                "KR101",
                "0000:c4:00.1",
                f"if it is meant to be used: {BIND}",
            )
        ],
    ),
    ("posted/x722-iwarp-and-edr", "eno2 eno1 ib0", WELL),
    ("posted/interface-in-another-namespace", "- eno12409 ens7f0 ens7f1", WELL),
    ("cases/01-xdr-smi-device/tree", "ibs192", WELL),
    ("cases/05-switchdev-pf-without-gids/tree", "ens1f1np1 ens1f1v0", WELL),
    (
        "cases/05-switchdev-pf-without-gids/tree-uplink-down",
        "ens1f0np0 - -",
        [("KR120", "mlx5_0", "ip link set ens1f0np0 up")],
    ),
    ("cases/06-vf-lag-representor/tree", "enp7s0f0np0/bond0", WELL),
    ("cases/06-vf-lag-representor/tree-renamed-uplink", "rdma0/bond0", WELL),
    ("cases/09-rate-of-storage-nics/tree", None, WELL),
    ("cases/32-mana-of-azure/tree", "enP30832s1", WELL),
]


@pytest.mark.parametrize(("tree", "interfaces", "wrong"), POSTED, ids=[one[0] for one in POSTED])
def test_a_posted_machine_is_read_and_judged_as_it_is(tree, interfaces, wrong, tmp_path):
    unpack((DATA / f"{tree}.txt").read_text(), tmp_path)
    ports = [port for device in survey_at(tmp_path).devices for port in device.ports]
    shown = [f"{one.netdev}/{one.bond}" if one.bond else one.netdev or "-" for one in ports]
    assert interfaces is None or shown == interfaces.split()
    findings, code = found(tmp_path)
    fixes = [(one["code"], one["about"], one["fix"]) for one in findings]
    assert [(code, about, fix[:1].lower() + fix[1:]) for code, about, fix in fixes] == wrong
    assert code == any(one["severity"] == "error" for one in findings)


def test_a_slow_uplink_of_a_switch_is_named_with_its_card(tmp_path):
    """Case 19: the card's own link is full, and a warning alone ends with 0."""
    unpack((DATA / "cases/19-pcie-switch-uplink/tree.txt").read_text(), tmp_path)
    ((slow,), code) = found(tmp_path)
    assert (slow["code"], code) == ("KR125", 0)
    assert "from 0000:15:01.0 to 0000:16:00.0" in slow["evidence"]
