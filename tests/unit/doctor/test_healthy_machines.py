"""Nothing is said of a healthy machine: each that comes with kube-rdma, by the command itself."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from kube_rdma.cli.doctor import doctor
from kube_rdma.hardware import machines


def found(*words):
    """What the command finds, and its exit code."""
    result = CliRunner().invoke(doctor, ["--json", "--sysfs", *map(str, words)])
    return json.loads(result.output)["findings"], result.exit_code


@pytest.mark.parametrize("name", machines.names(machines.WELL))
def test_a_machine_that_is_well_is_silent(name):
    assert found(name) == ([], 0)


def test_a_slow_port_is_looked_at_by_its_own_name():
    ((slow,), _) = found("dgx-slow-port")
    assert slow["fix"].startswith("See ibstat mlx5_3 1; ")


@pytest.mark.parametrize(
    ("machine", "interface", "expected"),
    [
        ("mlx5-dual-port", "enp129s0f0np0", []),
        ("mlx5-dual-port", "enp129s0f1np1", [("KR120", "mlx5_1")]),
        ("bnxt-re", "ens2f0np0", []),
        ("bnxt-re", "ens2f1np1", [("KR121", "bnxt_re1")]),
        ("dgx-cable-out", "ib0", []),
        ("dgx-cable-out", "ib3", [("KR121", "mlx5_3")]),
        ("mlx5-bond", "ens1f0np0", [("KR115", "mlx5_bond_0")]),
        ("cx5-dual", "", [("KR123", "mlx5_0"), ("KR123", "mlx5_1")]),  # VFs have the RoCE
        ("mlx5-vf-lag", "", [("KR123", "mlx5_bond_0")]),  # nomaster would break the VFs' bond
        ("cx7-ib-and-storage", "", []),
        ("azure-hb", "", []),
        ("azure-gb300", "", []),
        ("azure-mana", "", [("KR132", "rdma/nic")]),
    ],
)
def test_a_card_is_judged_where_a_pool_means_it(machine, interface, expected, tmp_path):
    pool = {"resource": "rdma/nic", "mode": "shared-multi", "shares": 8}
    selectors = [{"interfaces": [interface]}] if interface else []
    spec = {"pools": [pool | {"selectors": selectors}]}
    policy = {"apiVersion": "kube-rdma.io/v1alpha1", "kind": "NodePolicy", "spec": spec}
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(policy | {"metadata": {"name": "p"}}))
    findings, _ = found(machine, "--config", path)
    assert [(one["code"], one["about"]) for one in findings if not one["follows"]] == expected
