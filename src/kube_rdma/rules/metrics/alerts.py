"""Alert rules for Prometheus, on the families of the table: what a person should look at.

`metrics.rules` of the chart makes a PrometheusRule of them; a test holds every name and label
against the table. A sentence names labels of its series as "{instance}"; Prometheus fills them in.
"""

from __future__ import annotations

import re

from kube_rdma.model.install.blueprint import Json
from kube_rdma.rules.metrics import families

_ACTIVE = 4  # state_id of a port that carries data
_LABEL = re.compile(r"\{(\w+)\}")


def rule_groups() -> list[Json]:
    """The groups of a PrometheusRule."""
    return [
        {"name": "kube-rdma.cards", "rules": list(_cards())},
        {"name": "kube-rdma.pods", "rules": list(_pods())},
        {"name": "kube-rdma.agents", "rules": list(_agents())},
    ]


def _alert(name: str, expression: str, minutes: int, severity: str, text: str) -> Json:
    summary, _, description = _LABEL.sub(r"{{$labels.\1}}", text).partition(" | ")
    return {
        "alert": f"KubeRdma{name}",
        "expr": expression,
        "for": f"{minutes}m",
        "labels": {"severity": severity},
        "annotations": {"summary": summary, "description": description},
    }


def _cards() -> tuple[Json, ...]:
    state, offered = families.STATE.name, families.POOL_DEVICE.name
    changes, lost = families.HEALTH_CHANGES.name, families.OF_NODE["packet_seq_err"].name
    return (
        _alert(
            "CardUnhealthy",
            f"{families.CARD_HEALTHY.name} == 0",
            5,
            "warning",
            "Card {name} of resource {resource} at {instance} is unhealthy and not allocatable. | "
            "Read the NodeReport of the node at {instance}: it says why card {card} is unhealthy "
            "and what to do.",
        ),
        _alert(
            "PortDown",
            f"{state} != {_ACTIVE} and on (instance, device) {offered}",
            5,
            "warning",
            "Port {port} of device {device} at {instance} carries no data; its card is "
            "allocatable. | "
            "Check the cable and the switch of device {device}, and whether its interface is up.",
        ),
        _alert(
            "CardFlaps",
            f'increase({changes}{{healthy="false"}}[30m]) > 3',
            0,
            "warning",
            "Card {card} at {instance} became unhealthy more than three times in 30 minutes. | "
            "Check the cable of card {card} and its port of the switch.",
        ),
        _alert(
            "PacketsLost",
            f"rate({lost}[5m]) > 10",
            10,
            "info",
            "A peer of device {device} (port {port}) at {instance} misses packets all the time. | "
            "Check flow control (PFC), ECN and the errors of switches between device {device} and "
            "its peers.",
        ),
    )


def _pods() -> tuple[Json, ...]:
    attach = families.ATTACH.name
    used, shares = families.USED_SHARES.name, families.SHARES.name
    failed = f'increase({attach}_count{{outcome!="ok"}}[15m])'
    slow = f'rate({attach}_bucket{{operation="add"}}[15m])'
    return (
        _alert(
            "PodPortDown",
            f"{families.POD_STATE.name} != {_ACTIVE}",
            2,
            "critical",
            "Port {port} of device {device} in pod {namespace}/{pod} carries no data. | "
            "The job in pod {pod} waits or runs over TCP: check the cable and the switch port of "
            "device {device}.",
        ),
        _alert(
            "AttachFails",
            f"sum by (instance, operation, outcome) ({failed}) > 3",
            0,
            "warning",
            "CNI calls ({operation}) at {instance} failed repeatedly with outcome {outcome}. | "
            "Read the Events of the pods and the log of the agent at {instance}: they say why.",
        ),
        _alert(
            "AttachSlow",
            f"histogram_quantile(0.95, sum by (instance, le) ({slow})) > 5",
            15,
            "warning",
            "One pod in twenty at {instance} waits more than 5 s for its network. | "
            "Compare the durations of addresses and late binding at {instance}: they show "
            "which part is slow.",
        ),
        _alert(
            "ResourceFull",
            f"{used} >= {shares} and {shares} > 0",
            30,
            "info",
            "All shares of resource {resource} at {instance} are in use. | "
            "Nothing is wrong: further pods wait or go to other nodes. Add shares or cards of "
            "{resource} if they wait too long.",
        ),
    )


def _agents() -> tuple[Json, ...]:
    return (
        _alert(
            "HoldersUnknown",
            f"{families.HOLDERS_KNOWN.name} == 0",
            15,
            "warning",
            "The kubelet at {instance} does not report which pods hold shares. | "
            "Metrics of pods are missing: check the kubelet at {instance}, and that the agent "
            "mounts its folder pod-resources.",
        ),
        _alert(
            "PodsUnread",
            f"{families.UNENTERED.name} > 0",
            15,
            "info",
            "The agent at {instance} cannot read RDMA devices inside pods. | "
            "Give the agent at {instance} CAP_SYS_ADMIN and the folder /var/run/netns of the node.",
        ),
        _alert(
            "CountersUnread",
            f"{families.UNREAD.name} > 0",
            60,
            "info",
            "The agent at {instance} cannot read or understand some counter files. | "
            "Read the kernel's log at {instance} for messages of the driver; metrics are missing "
            "until the files can be read.",
        ),
        _alert(
            "PartFails",
            f"increase({families.PART_FAILURES.name}[15m]) > 3",
            0,
            "warning",
            "Part {part} of the agent at {instance} fails again and again; other parts go on. | "
            "Read the log of the agent at {instance}: search for `part of the program failed`.",
        ),
    )
