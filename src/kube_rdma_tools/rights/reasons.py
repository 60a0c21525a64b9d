"""Reasons for each resource of a role: a phrase for each row of docs/least-privilege.md."""

from __future__ import annotations

from collections.abc import Mapping

OWN, NETWORKS, POLICIES = (
    "kube-rdma.io",
    "network-attachment-definitions.k8s.cni.cncf.io",
    "mellanox.com",
)
_EVENTS = "events.events.k8s.io"
_CLAIMS, _SLICES = "resourceclaims.resource.k8s.io", "resourceslices.resource.k8s.io"
_CLASSES = "deviceclasses.resource.k8s.io"
_ENDPOINTS = "endpointslices.discovery.k8s.io"
_TEMPLATES = "resourceclaimtemplates.resource.k8s.io"
_LEASES = "leases.coordination.k8s.io"
_ADMISSION = "admissionregistration.k8s.io"
_FORMER_WEBHOOK = "to delete the webhook of an earlier version"
_OF_NETWORKS = "networks of pods, `explain`, `resources` and `status`"
_OF_KINDS = {
    f"nodepolicies.{OWN}": "to look at",
    f"nodereports.{OWN}": "to look at; `status`, `resources`, `explain`",
    f"ippools.{OWN}": "to look at; `ip`",
    f"ipblocks.{OWN}": "to look at; `ip`",
    f"bandwidthchecks.{OWN}": "to look at",
}
_OF_PERFTEST = {
    "pods": "pods that measure, where none run",
    "pods/exec": "to run perftest in them",
    _CLAIMS: "which cards pods have by claims",
    _TEMPLATES: "which nodes can give what a template asks for",
}
_OF_POLICIES = {
    f"nicclusterpolicies.{POLICIES}": "what to deploy",
    f"nicclusterpolicies/status.{POLICIES}": "what came of it",
    f"nicclusterpolicies/finalizers.{POLICIES}": "a policy waits for the end of what it deployed",
}

REASONS: Mapping[str, Mapping[str, str]] = {
    "ClusterRole agent": {
        "nodes": "its node: labels, and the startup taint that it removes",
        "nodes/status": "the condition CardsHealthy",
        "pods": "networks that pods of its node ask for, and what they got",
        f"nodepolicies.{OWN}": "what is desired of its node",
        f"nodereports.{OWN}": "the report of its node",
        f"nodereports/status.{OWN}": "the report of its node",
        f"ippools.{OWN}": "pools of addresses; it makes that of a whereabouts configuration",
        f"ippools/status.{OWN}": "to ask other nodes for addresses",
        f"ipblocks.{OWN}": "the addresses that its node holds",
        NETWORKS: "the network that a pod names",
        f"nfdlabels.{OWN}": "no API: by it the policy lets agents write labels of others",
        _SLICES: "GPUs of the node; with claims also the devices that the node offers",
        _CLAIMS: "which GPU and which card a pod was given",
        "resourceclaims/status.resource.k8s.io": "with claims: what became of a device",
        "resourceclaims/driver.resource.k8s.io": "with claims, from 1.36 on: claims of its node",
        _EVENTS: "why a pod or a card fails",
    },
    "Role agent": {_LEASES: "its node's lease, by which it may assign addresses"},
    "ClusterRole controller": {
        "nodes": "which run agents; labels of leaves; the operator cordons one for an upgrade",
        "pods": "pods that an agent marked for a restart; with `controller.names`, addresses",
        "pods/eviction": "restarts that an agent asked for, and upgrades that drain",
        f"ippools.{OWN}": "pools of addresses",
        f"ippools/status.{OWN}": "how full they are",
        f"ipblocks.{OWN}": "addresses of nodes that are gone",
        f"nodepolicies.{OWN}": "which policy has an effect",
        f"nodepolicies/status.{OWN}": "how many nodes apply it",
        f"nodereports.{OWN}": "the state of all nodes, for statuses and metrics",
        f"bandwidthchecks.{OWN}": "measurements to do",
        f"bandwidthchecks/status.{OWN}": "what was measured",
        _CLASSES: "for a check: which nodes offer a resource by claims",
        _SLICES: "for a check: which cards nodes and pods have by claims",
        "services": "with `controller.names`: which Services ask for names of RDMA addresses",
        _ENDPOINTS: "with `controller.names`: the addresses of these names",
        _CLAIMS: "with `controller.names`: addresses that claims gave to pods",
        NETWORKS: "with `controller.names`: whether there is a network that a Service names",
        f"validatingwebhookconfigurations.{_ADMISSION}": _FORMER_WEBHOOK,
        f"mutatingwebhookconfigurations.{_ADMISSION}": _FORMER_WEBHOOK,
        _EVENTS: "faults of policies, pools and checks",
        **_OF_POLICIES,
    },
    "Role controller": {
        _LEASES: "which copy leads; leases of nodes",
        "daemonsets.apps": "what a policy deploys",
        "configmaps": "configurations of what a policy deploys",
        "pods": "to end the pod of a driver, which upgrades it",
        **_OF_POLICIES,
    },
    "ClusterRole bandwidth-check": _OF_PERFTEST,
    "ClusterRole view": {
        "nodes": "`status`, `resources`, `explain`",
        "pods": "`status`, `resources`, `explain`",
        "events": "`status`: Events of kube-rdma",
        "resourcequotas": "`resources`",
        _ENDPOINTS: "`resources`, `explain`: names of addresses",
        _LEASES: "`ip`: leases of nodes",
        _CLASSES: "`resources`, `explain`",
        _CLAIMS: "`explain`",
        _SLICES: "`explain`",
        "daemonsets.apps": "`status`: agents and drivers",
        "deployments.apps": "`status`: controllers, and operators of others",
        NETWORKS: _OF_NETWORKS,
        f"nicclusterpolicies.{POLICIES}": "to look at; `status`",
        f"validatingadmissionpolicybindings.{_ADMISSION}": "`status`: whether one limits agents",
        **_OF_KINDS,
    },
    "ClusterRole aggregate-to-view": {**_OF_KINDS, NETWORKS: _OF_NETWORKS},
    "ClusterRole aggregate-to-edit": {f"bandwidthchecks.{OWN}": "to ask for measurements"},
    "ClusterRole verify": {
        **_OF_PERFTEST,
        "nodes": "`verify nodes`",
        f"nodereports.{OWN}": "`verify nodes` without `-f`: which cards nodes have",
        _CLASSES: "`verify nodes`: which nodes offer a resource by claims",
        _SLICES: "which cards nodes and pods have by claims",
        f"bandwidthchecks.{OWN}": "to ask for measurements",
    },
    "Role doctor": {
        "pods": "which agent is on a node",
        "pods/exec": "to run the doctor in its container, and what `top` reads",
    },
    "ClusterRole retirement": {"pods": "whether a pod still needs the agents"},
    "Role retirement": {
        "daemonsets.apps": "to end the agents, and to wait until nodes are clean",
        "pods": "to wait until agents are gone",
    },
    "Role retirement-drivers": {
        "daemonsets.apps": "whether drivers run",
        "pods": "on which nodes they run",
    },
}
