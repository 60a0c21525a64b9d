"""Alert rules for Prometheus, on the families of the table: what a person should look at.

`metrics.rules` of the chart makes a PrometheusRule of them; a test holds every name and label
against the table. A sentence names labels of its series as "{device}", which Prometheus fills in;
"{name|card}" is the first of the two that the series has. docs/runbook.md has a section for each.
"""

from __future__ import annotations

import re

from kube_base.frozen import Frozen
from kube_rdma.metrics.rules import families
from kube_rdma.model.install import Hole, Joined, Json, Node

RUNBOOK = "docs/runbook.md"
_ACTIVE = 4  # state_id of a port that carries data
_LABEL = re.compile(r"\{(\w+)(?:\|(\w+))?\}")
_NODE = "{node|instance}"  # the PodMonitor sets node; a scrape without it has only an address


class AlertRule(Frozen):
    """An alert: when it fires, how bad it is, its sentences, and its threshold if that is a guess.

    `what` is one sentence that says what is wrong and where, `look` one that says what to do first.
    """

    name: str
    expression: str
    minutes: int
    severity: str
    what: str
    look: str
    guess: str = ""


def rule_groups(runbook: Hole | str = RUNBOOK) -> list[Json]:
    """The groups of a PrometheusRule; each alert has its section of `runbook` as runbook_url."""
    groups = {
        "cards": (*_cards(), _pcie()),
        "pods": _pods(),
        "agents": _agents(),
        "cluster": _cluster(),
    }
    return [
        {"name": f"kube-rdma.{name}", "rules": [_rule(alert, runbook) for alert in alerts]}
        for name, alerts in groups.items()
    ]


def anchor(alert: str) -> str:
    """What the address of an alert's section ends with, as GitHub makes it of a heading."""
    return f"#{alert.lower()}"


def _rule(alert: AlertRule, runbook: Hole | str) -> Json:
    name = f"KubeRdma{alert.name}"
    annotations: dict[str, Node] = {
        "summary": _filled(alert.what),
        "description": _filled(alert.look),
        "runbook_url": (
            runbook + anchor(name) if isinstance(runbook, str) else Joined((runbook, anchor(name)))
        ),
    }
    if alert.guess:
        annotations["threshold"] = f"The threshold, {alert.guess}, is a guess."
    return {
        "alert": name,
        "expr": alert.expression,
        "for": f"{alert.minutes}m",
        "labels": {"severity": alert.severity},
        "annotations": annotations,
    }


def _filled(text: str) -> str:
    """The sentence as a template of Prometheus, in which a label that is missing is empty."""
    return _LABEL.sub(
        lambda m: (
            f"{{{{or $labels.{m[1]} $labels.{m[2]}}}}}" if m[2] else f"{{{{$labels.{m[1]}}}}}"
        ),
        text.replace("{node}", _NODE),
    )


def _cards() -> tuple[AlertRule, ...]:
    state, offered = families.STATE.name, families.POOL_DEVICE.name
    healthy, lost = families.CARD_HEALTHY.name, families.OF_NODE["packet_seq_err"].name
    flaps = f'increase({families.HEALTH_CHANGES.name}{{healthy="false"}}[30m]) > 3'
    # A card that is gone has no name any more, and its alert stays.
    names = f"max by (instance, card, name) ({healthy} >= bool 0)"
    named = f"({flaps}) * on (instance, card) group_left (name) {names}"
    return (
        AlertRule(
            "CardUnhealthy",
            f"{healthy} == 0",
            5,
            "warning",
            "Card {name|card} of resource {resource} on {node} is unhealthy and not allocatable.",
            "Read the NodeReport of {node}: it says why card {name|card} is unhealthy and what to "
            "do.",
        ),
        AlertRule(
            "PortDown",
            f"{state} != {_ACTIVE} and on (instance, device) {offered}",
            5,
            "warning",
            "Port {port} of device {device} on {node} carries no data; its card is allocatable.",
            "Check the cable and the switch of device {device}, and whether its interface is up.",
        ),
        AlertRule(
            "CardFlaps",
            f"({named}) or on (instance, card) ({flaps})",
            0,
            "warning",
            "Card {name|card} on {node} became unhealthy more than three times in 30 minutes.",
            "Check the cable of card {name|card} and its port of the switch.",
            "three times in 30 minutes",
        ),
        AlertRule(
            "PacketsLost",
            f"rate({lost}[5m]) > 10",
            10,
            "info",
            "A peer of device {device} (port {port}) on {node} misses packets all the time.",
            "Check flow control (PFC), ECN and the errors of switches between device {device} and "
            "its peers.",
            "10 packets a second",
        ),
    )


def _pcie() -> AlertRule:
    lanes, speed = families.PCIE_LANES.name, families.PCIE_SPEED.name
    most_lanes, most_speed = families.PCIE_MOST_LANES.name, families.PCIE_MOST_SPEED.name
    return AlertRule(
        "PcieDegraded",
        f"{lanes} * {speed} < {most_lanes} * {most_speed}",
        15,
        "warning",
        "The PCIe link of device {device} on {node} is slower than card and slot can be.",
        "Compare current and largest width and speed of device {device} with lspci -vv, then "
        "reseat the card.",
    )


def _pods() -> tuple[AlertRule, ...]:
    attach = families.ATTACH.name
    used, shares = families.USED_SHARES.name, families.SHARES.name
    failed = f'increase({attach}_count{{outcome!="ok"}}[15m])'
    slow = f'rate({attach}_bucket{{operation="add"}}[15m])'
    return (
        AlertRule(
            "PodPortDown",
            f"{families.POD_STATE.name} != {_ACTIVE}",
            2,
            "critical",
            "Port {port} of device {device} in pod {namespace}/{pod} on {node} carries no data.",
            "The job in pod {pod} waits or runs over TCP: check the cable and the switch port of "
            "device {device}.",
        ),
        AlertRule(
            "AttachFails",
            f"sum by (instance, node, operation, outcome) ({failed}) > 3",
            0,
            "warning",
            "CNI calls ({operation}) on {node} failed repeatedly with outcome {outcome}.",
            "Read the Events of the pods and the log of the agent on {node}: they say why.",
            "three calls in 15 minutes",
        ),
        AlertRule(
            "AttachSlow",
            f"histogram_quantile(0.95, sum by (instance, node, le) ({slow})) > 5",
            15,
            "warning",
            "One pod in twenty on {node} waits more than 5 s for its network.",
            "Compare the durations of addresses and late binding on {node}: they show "
            "which part is slow.",
            "5 s for one pod in twenty",
        ),
        AlertRule(
            "ResourceFull",
            f"{used} >= {shares} and {shares} > 0",
            30,
            "info",
            "All shares of resource {resource} on {node} are in use.",
            "Nothing is wrong: further pods wait or go to other nodes. Add shares or cards of "
            "{resource} if they wait too long.",
        ),
    )


def _agents() -> tuple[AlertRule, ...]:
    return (
        AlertRule(
            "AgentAway",
            f"up == 0 and on (instance) last_over_time({families.BUILD.name}[2d])",
            5,
            "critical",
            "The agent on {node} does not answer; pods with networks do not start there.",
            "Read the state and the log of the agent's pod on {node}, and whether the node is "
            "ready.",
        ),
        AlertRule(
            "HoldersUnknown",
            f"{families.HOLDERS_KNOWN.name} == 0",
            15,
            "warning",
            "The kubelet on {node} does not report which pods hold shares.",
            "Metrics of pods are missing: check the kubelet on {node}, and that the agent "
            "mounts its folder pod-resources.",
        ),
        AlertRule(
            "PodsUnread",
            f"{families.UNENTERED.name} > 0",
            15,
            "info",
            "The agent on {node} cannot read RDMA devices inside pods.",
            "Give the agent on {node} CAP_SYS_ADMIN and the folder /var/run/netns of the node.",
        ),
        AlertRule(
            "CountersUnread",
            f"{families.UNREAD.name} > 0",
            60,
            "info",
            "The agent on {node} cannot read or understand some counter files.",
            "Read the kernel's log on {node} for messages of the driver; metrics are missing "
            "until the files can be read.",
        ),
        AlertRule(
            "PartFails",
            f"increase({families.PART_FAILURES.name}[15m]) > 3",
            0,
            "warning",
            "Part {part} of the agent on {node} fails again and again; other parts go on.",
            "Read the log of the agent on {node}: search for `part of the program failed`.",
            "three failures in 15 minutes",
        ),
    )


def _cluster() -> tuple[AlertRule, ...]:
    """What the controller answers; a release without one has none of these series."""
    leads, held = families.CONTROLLER_LEADS.name, families.POOL_HELD.name
    by = "max by (namespace, job)"
    return (
        AlertRule(
            "ControllerAway",
            f"{by} (max_over_time({leads}[1d])) == 1 "
            f"unless on (namespace, job) ({by} ({leads}) == 1)",
            5,
            "critical",
            "No copy of the controller in {namespace|job} leads, and one did within a day.",
            "Read the state and the log of the controller's pods in {namespace|job}; addresses of "
            "dead nodes stay held until then.",
        ),
        AlertRule(
            "AddressesRunOut",
            f"{held} / {families.POOL_ADDRESSES.name} >= 0.9",
            5,
            "warning",
            "Nodes hold at least 90 % of the IPv{family} addresses of IPPool {pool}.",
            "Add a range to IPPool {pool} before it is full: then pods with its networks wait.",
            "90 %",
        ),
    )
