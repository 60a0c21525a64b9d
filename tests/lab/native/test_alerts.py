"""The real Prometheus' promtool fires the alerts on made-up series, and fills in their sentences.

No lab is booted: promtool is Debian's, as in test_prometheus.
"""

import json
import re
import subprocess

import pytest

from kube_rdma.metrics.rules import families
from kube_rdma_tools.metrics import rule_groups
from tests.kit import prometheus as kit

RULES = {rule["alert"]: rule for group in rule_groups() for rule in group["rules"]}
AT = {"instance": "10.0.0.17:9879", "node": "node-17"}
BARE = {"instance": "10.0.0.17:9879"}
CARD = {"card": "0000:13:00.0", "name": "mlx5_3", "resource": "rdma/nic"}
FLAPS = (families.HEALTH_CHANGES.name, {"card": CARD["card"], "healthy": "false", **AT}, "0+1x120")
LEADS = families.CONTROLLER_LEADS.name
COPY = {"job": "kube-rdma/kube-rdma-controller", "namespace": "kube-rdma"}
HELD = {"pool": "rail-3", "family": "4", "rail": "3", "instance": "10.244.0.9:9879", **COPY}
DEVICE = {"device": "mlx5_3", **AT}
PCIE = (families.PCIE_LANES, families.PCIE_MOST_LANES, families.PCIE_SPEED)
PCIE_SERIES = [
    (one.name, DEVICE, f"{value}x120") for one, value in zip(PCIE, (8, 16, 32e9), strict=True)
]
FULL_SPEED = (families.PCIE_MOST_SPEED.name, DEVICE, "32e9x120")
ANSWERED = (families.BUILD.name, {"version": "1", **AT}, "1x20 _x100")

# An alert, the series, the labels that it fires with after 90 minutes, its summary.
FIRING = [
    (
        "KubeRdmaCardUnhealthy",
        [(families.CARD_HEALTHY.name, CARD | AT, "0x120")],
        CARD | AT,
        "Card mlx5_3 of resource rdma/nic on node-17 is unhealthy and not allocatable.",
    ),
    (
        "KubeRdmaCardUnhealthy",
        [(families.CARD_HEALTHY.name, CARD | BARE, "0x120")],
        CARD | BARE,
        "Card mlx5_3 of resource rdma/nic on 10.0.0.17:9879 is unhealthy and not allocatable.",
    ),
    (
        "KubeRdmaCardFlaps",
        [FLAPS, (families.CARD_HEALTHY.name, CARD | AT, "0x120")],
        {"card": CARD["card"], "healthy": "false", "name": "mlx5_3", **AT},
        "Card mlx5_3 on node-17 became unhealthy more than three times in 30 minutes.",
    ),
    (
        "KubeRdmaCardFlaps",
        [FLAPS],
        {"card": CARD["card"], "healthy": "false", **AT},
        "Card 0000:13:00.0 on node-17 became unhealthy more than three times in 30 minutes.",
    ),
    (
        "KubeRdmaPcieDegraded",
        [*PCIE_SERIES, FULL_SPEED],
        DEVICE,
        "The PCIe link of device mlx5_3 on node-17 is slower than card and slot can be.",
    ),
    (
        "KubeRdmaAgentAway",
        [("up", AT | {"job": "kube-rdma"}, "1x20 0x100"), ANSWERED],
        AT | {"job": "kube-rdma"},
        "The agent on node-17 does not answer Prometheus.",
    ),
    (
        "KubeRdmaControllerAway",
        [(LEADS, COPY | {"pod": "a"}, "1x20 _x100"), (LEADS, COPY | {"pod": "b"}, "0x120")],
        COPY,
        "No copy of the controller in kube-rdma leads, and one did within a day.",
    ),
    (
        "KubeRdmaAddressesRunOut",
        [
            (families.POOL_HELD.name, HELD, "900x120"),
            (families.POOL_ADDRESSES.name, HELD, "1000x120"),
        ],
        HELD,
        "Nodes hold at least 90 % of the IPv4 addresses of IPPool rail-3.",
    ),
]
SILENT = [
    ("KubeRdmaCardFlaps", [(FLAPS[0], FLAPS[1], "0+0x120")]),
    ("KubeRdmaPcieDegraded", [(one.name, DEVICE, "16x120") for one in families.PCIE_FAMILIES]),
    ("KubeRdmaAgentAway", [("up", AT | {"job": "another"}, "0x120")]),
    ("KubeRdmaAgentAway", [("up", AT, "1x120"), ANSWERED]),
    (
        "KubeRdmaControllerAway",
        [(LEADS, COPY | {"pod": "a"}, "1x20 _x100"), (LEADS, COPY | {"pod": "b"}, "0x20 1x100")],
    ),
    ("KubeRdmaControllerAway", [(LEADS, COPY, "0x120")]),
    (
        "KubeRdmaAddressesRunOut",
        [
            (families.POOL_HELD.name, HELD, "899x120"),
            (families.POOL_ADDRESSES.name, HELD, "1000x120"),
        ],
    ),
]


@pytest.fixture(scope="module")
def program():
    with kit.programs() as folder:
        yield folder


def written(name, labels):
    return f"{name}{{{', '.join(f'{key}={json.dumps(value)}' for key, value in labels.items())}}}"


def filled(text, labels):
    """A template of Prometheus with these labels, as far as alerts use its language."""

    def value(match):
        return next(filter(None, (labels.get(key, "") for key in match.groups() if key)), "")

    return re.sub(r"\{\{(?:or )?\$labels\.(\w+)(?: \$labels\.(\w+))?\}\}", value, text)


def outcome(program, folder, alert, series, firing):
    """What promtool says of the alert on these series; `firing` are labels of alerts that fire."""
    rule = RULES[alert]
    expected = [
        {
            "exp_labels": rule["labels"] | labels,
            "exp_annotations": {
                key: filled(text, labels) for key, text in rule["annotations"].items()
            },
        }
        for labels in firing
    ]
    case = {
        "interval": "1m",
        "input_series": [
            {"series": written(name, labels), "values": values} for name, labels, values in series
        ],
        "alert_rule_test": [{"eval_time": "90m", "alertname": alert, "exp_alerts": expected}],
    }
    (folder / "rules.json").write_text(json.dumps({"groups": rule_groups()}))
    document = {"rule_files": ["rules.json"], "evaluation_interval": "1m", "tests": [case]}
    (folder / "cases.json").write_text(json.dumps(document))
    words = [program / "promtool", "test", "rules", "cases.json"]
    run = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    return run.returncode, run.stdout + run.stderr


@pytest.mark.parametrize(
    ("alert", "series", "labels", "summary"), FIRING, ids=[row[0] for row in FIRING]
)
def test_an_alert_fires_and_says_where(program, tmp_path, alert, series, labels, summary):
    code, text = outcome(program, tmp_path, alert, series, [labels])
    assert code == 0, text
    assert filled(RULES[alert]["annotations"]["summary"], labels) == summary


@pytest.mark.parametrize(("alert", "series"), SILENT, ids=[row[0] for row in SILENT])
def test_an_alert_is_silent_where_nothing_is_wrong(program, tmp_path, alert, series):
    code, text = outcome(program, tmp_path, alert, series, [])
    assert code == 0, text
