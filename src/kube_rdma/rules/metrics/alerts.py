"""Alert rules for Prometheus, on the families of the table: what a person should look at.

`metrics.rules` of the chart makes a PrometheusRule of them; a test holds every name and label
against the table. Labels of the series say where; the sentences say what and what to do.
"""

from __future__ import annotations

from kube_rdma.model.blueprint import Json
from kube_rdma.rules.metrics import families

_ACTIVE = 4  # state_id of a port that carries data


def rule_groups() -> list[Json]:
    """The groups of a PrometheusRule."""
    return [
        {"name": "kube-rdma.cards", "rules": list(_cards())},
        {"name": "kube-rdma.pods", "rules": list(_pods())},
        {"name": "kube-rdma.agents", "rules": list(_agents())},
    ]


def _alert(name: str, expression: str, minutes: int, severity: str, text: str) -> Json:
    summary, _, description = text.partition(" | ")
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
            "A card of a resource cannot be given away. | "
            "The NodeReport of its node says why and what to do.",
        ),
        _alert(
            "PortDown",
            f"{state} != {_ACTIVE} and on (instance, device) {offered}",
            5,
            "warning",
            "A port of a card that is offered carries no data. | "
            "Look at its cable, its switch, and the administrative state of its interface.",
        ),
        _alert(
            "CardFlaps",
            f'increase({changes}{{healthy="false"}}[30m]) > 3',
            0,
            "warning",
            "A card became unhealthy more than three times in half an hour. | "
            "Look at its cable and at the port of the switch.",
        ),
        _alert(
            "PacketsLost",
            f"rate({lost}[5m]) > 10",
            10,
            "info",
            "A peer of this port misses packets all the time. | "
            "Look at flow control (PFC), ECN and the errors of the switches on the way.",
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
            "A port that a container has alone carries no data. | "
            "Its job waits or runs over TCP; look at the cable and at the port of the switch.",
        ),
        _alert(
            "AttachFails",
            f"sum by (instance, operation, outcome) ({failed}) > 3",
            0,
            "warning",
            "Networks of pods were not attached or not removed. | "
            "The events of the pods and the agent's log on the node say why.",
        ),
        _alert(
            "AttachSlow",
            f"histogram_quantile(0.95, sum by (instance, le) ({slow})) > 5",
            15,
            "warning",
            "One pod in twenty waits more than 5 s for its network. | "
            "Compare the durations of addresses and of late binding to see which part is slow.",
        ),
        _alert(
            "ResourceFull",
            f"{used} >= {shares} and {shares} > 0",
            30,
            "info",
            "All shares of a resource are in use on a node. | "
            "Further pods wait or go elsewhere; nothing is wrong.",
        ),
    )


def _agents() -> tuple[Json, ...]:
    return (
        _alert(
            "HoldersUnknown",
            f"{families.HOLDERS_KNOWN.name} == 0",
            15,
            "warning",
            "The kubelet does not say who holds shares, so series of pods are missing. | "
            "Mount its folder pod-resources into the agent, and look at the kubelet.",
        ),
        _alert(
            "PodsUnread",
            f"{families.UNENTERED.name} > 0",
            15,
            "info",
            "The agent cannot read devices inside pods. | "
            "It needs CAP_SYS_ADMIN and the folder /var/run/netns of the host.",
        ),
        _alert(
            "CountersUnread",
            f"{families.UNREAD.name} > 0",
            60,
            "info",
            "Files of counters cannot be read or understood. | "
            "Their series are missing; the kernel's log may name the driver.",
        ),
        _alert(
            "PartFails",
            f"increase({families.PART_FAILURES.name}[15m]) > 3",
            0,
            "warning",
            "A part of the agent fails again and again; the others go on. | "
            "Its log says why: look for `part of the program failed`.",
        ),
    )
