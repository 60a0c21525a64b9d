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
_CLASSES, _RULES = "deviceclasses.resource.k8s.io", "devicetaintrules.resource.k8s.io"
_ENDPOINTS = "endpointslices.discovery.k8s.io"
_OF_GANGS = (
    *("jobs.batch", "statefulsets.apps", "jobsets.jobset.x-k8s.io", "rayclusters.ray.io"),
    *("mpijobs.kubeflow.org", "pytorchjobs.kubeflow.org"),
    "leaderworkersets.leaderworkerset.x-k8s.io",
)
_TEMPLATES = "resourceclaimtemplates.resource.k8s.io"
_LEASES = "leases.coordination.k8s.io"
_KUEUE = "kueue.x-k8s.io"
_ADMISSION = "admissionregistration.k8s.io"
_FORMER_WEBHOOK = "to delete an earlier version's webhook"
_OF_NETWORKS = "`kube-rdma explain`, `resources`, `status`: networks of pods"
_OF_KINDS = {
    f"nodepolicies.{OWN}": "`kube-rdma status`, `explain`",
    f"nodereports.{OWN}": "`kube-rdma status`, `resources`, `explain`",
    f"ippools.{OWN}": "`kube-rdma ip`, `status`, `resources`, `explain`",
    f"ipblocks.{OWN}": "`kube-rdma ip`",
    f"bandwidthchecks.{OWN}": "to read them",
    f"repairpolicies.{OWN}": "`kube-rdma repair`",
}
_OF_PERFTEST = {
    "pods": "pods that measure, where none run",
    "pods/exec": "to run perftest in pods",
    _CLAIMS: "which cards pods have by claims",
    _TEMPLATES: "which nodes can give what a template asks for",
}
_OF_POLICIES = {
    f"nicclusterpolicies.{POLICIES}": "what the operator deploys",
    f"nicclusterpolicies/status.{POLICIES}": "the state of what a policy deployed",
    f"nicclusterpolicies/finalizers.{POLICIES}": "deletion waits for what the policy deployed",
}

REASONS: Mapping[str, Mapping[str, str]] = {
    "ClusterRole agent": {
        "nodes": "its node: labels, and the removal of the startup taint",
        "nodes/status": "to write the condition CardsHealthy",
        "pods": "networks that pods of its node ask for, and what they got",
        f"nodepolicies.{OWN}": "the pools that are desired on its node",
        f"nodereports.{OWN}": "the report of its node",
        f"nodereports/status.{OWN}": "the report of its node",
        f"ippools.{OWN}": "pools of addresses; to create that of a CNI configuration",
        f"ippools/status.{OWN}": "to ask other nodes for addresses",
        f"ipblocks.{OWN}": "the addresses that its node holds",
        NETWORKS: "the network that a pod names",
        f"nfdlabels.{OWN}": "not an API: who has it may write labels of Node Feature Discovery",
        _SLICES: "GPUs of the node; with claims also the devices that the node offers",
        _CLAIMS: "which GPU and which card a pod was given",
        "resourceclaims/status.resource.k8s.io": "with claims: what became of a device",
        "resourceclaims/driver.resource.k8s.io": "with claims, from 1.36 on: claims of its node",
        _EVENTS: "what happens to pods and the node",
    },
    "Role agent": {_LEASES: "its node's lease, by which it may assign addresses"},
    "ClusterRole controller": {
        "nodes": "which run agents; labels of leaf switches; cordons for driver upgrades; with "
        "`controller.repair`, taints",
        f"repairpolicies.{OWN}": "with `controller.repair`: which nodes to taint",
        f"repairpolicies/status.{OWN}": "with `controller.repair`: what was done",
        "pods": "restarts that agents asked for; with `controller.names`, addresses; with "
        "`controller.preflight`, gangs",
        "pods/eviction": "restarts that an agent asked for, and upgrades that drain",
        f"ippools.{OWN}": "pools of addresses",
        f"ippools/status.{OWN}": "how full pools are",
        f"ipblocks.{OWN}": "addresses of nodes that are gone",
        f"nodepolicies.{OWN}": "which policy has an effect",
        f"nodepolicies/status.{OWN}": "how many nodes apply it",
        f"nodereports.{OWN}": "the state of all nodes, for statuses and metrics",
        f"nodereports/status.{OWN}": "with `controller.repair`: receipts of measurements",
        f"bandwidthchecks.{OWN}": "which measurements to make; of gangs, the results",
        f"bandwidthchecks/status.{OWN}": "what was measured",
        _CLASSES: "for a check: which nodes offer a resource by claims",
        _RULES: "for a check: tainted cards; with `controller.repair`, to taint cards",
        _SLICES: "for a check and `controller.repair`: which cards claims use",
        "services": "with `controller.names`: which Services ask for names of RDMA addresses",
        _ENDPOINTS: "with `controller.names`: names and their RDMA addresses",
        _CLAIMS: "with `controller.names`: addresses that claims gave to pods",
        NETWORKS: "with `controller.names` or `queue`: networks that Services or jobs name",
        f"admissionchecks.{_KUEUE}": "with `controller.queue`: checks",
        f"admissionchecks/status.{_KUEUE}": "with `controller.queue`: conditions",
        f"workloads.{_KUEUE}": "with `controller.queue`: jobs that wait",
        f"workloads/status.{_KUEUE}": "with `controller.queue`: answers",
        f"resourceflavors.{_KUEUE}": "with `controller.queue`: nodes for jobs",
        **dict.fromkeys(_OF_GANGS, "sizes of gangs, with `controller.preflight`"),
        f"validatingwebhookconfigurations.{_ADMISSION}": _FORMER_WEBHOOK,
        f"mutatingwebhookconfigurations.{_ADMISSION}": _FORMER_WEBHOOK,
        _EVENTS: "faults, upgrades, evictions, measurements",
        **_OF_POLICIES,
    },
    "Role controller": {
        _LEASES: "which copy leads; leases of nodes",
        "daemonsets.apps": "what a policy deploys",
        "configmaps": "configurations of what a policy deploys",
        "pods": "to delete the pod of a driver, which upgrades the driver",
        f"bandwidthchecks.{OWN}": "with `controller.repair`: to measure new nodes",
        **_OF_POLICIES,
    },
    "ClusterRole bandwidth-check": _OF_PERFTEST,
    "ClusterRole view": {
        "nodes": "`kube-rdma status`, `resources`, `explain`, `ip`",
        "pods": "`kube-rdma status`, `resources`, `explain`",
        "events": "`kube-rdma status`, `explain`, `why`",
        "resourcequotas": "`kube-rdma resources`",
        _ENDPOINTS: "`kube-rdma resources`, `explain`: names of addresses",
        _LEASES: "`kube-rdma ip`: leases of nodes",
        _CLASSES: "`kube-rdma resources`, `explain`",
        **dict.fromkeys((_CLAIMS, _RULES, _SLICES), "`kube-rdma explain`"),
        "daemonsets.apps": "`kube-rdma status`, `resources`: agents",
        "deployments.apps": "`kube-rdma status`: controllers",
        NETWORKS: _OF_NETWORKS,
        f"nicclusterpolicies.{POLICIES}": "`kube-rdma status`",
        f"validatingadmissionpolicybindings.{_ADMISSION}": "whether one limits agents",
        **_OF_KINDS,
    },
    "ClusterRole aggregate-to-view": {**_OF_KINDS, NETWORKS: _OF_NETWORKS},
    "ClusterRole aggregate-to-edit": {f"bandwidthchecks.{OWN}": "to ask for measurements"},
    "ClusterRole verify": {
        **_OF_PERFTEST,
        "nodes": "`kube-rdma verify nodes`",
        f"nodereports.{OWN}": "`kube-rdma verify nodes` without `-f`: which cards nodes have",
        _CLASSES: "`kube-rdma verify nodes`: which nodes offer a resource by claims",
        _RULES: "tainted cards",
        _SLICES: "which cards nodes and pods have by claims",
        f"bandwidthchecks.{OWN}": "to ask for measurements",
    },
    "Role doctor": {
        "pods": "which agent runs on a node",
        "pods/exec": "to run the doctor and `kube-rdma top` in the agent's container",
    },
    "ClusterRole retirement": {"pods": "whether a pod still needs the agents"},
    "Role retirement": {
        "daemonsets.apps": "to end the agents, and to wait until nodes are clean",
        "pods": "to wait until agents are gone",
    },
    "Role retirement-drivers": {
        "daemonsets.apps": "whether drivers run",
        "pods": "on which nodes drivers run",
    },
}
