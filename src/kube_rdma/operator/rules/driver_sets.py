"""Makes the DaemonSets of drivers, one for each group of nodes that can share an image.

The image's release decides what its pod needs (model/operator). The DaemonSets select a label
of the operator (operator/rules/placement). No policy owns them: else Kubernetes would delete all
of them at once with the policy.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Sequence
from functools import partial
from hashlib import sha256

from kube_rdma.model import operator
from kube_rdma.model.install import Values
from kube_rdma.model.reports import NodeReport
from kube_rdma.operator.rules.daemon_sets import (
    Json,
    WantedObjects,
    account,
    daemon_set,
    folder,
    mount,
    named,
)
from kube_rdma.operator.rules.placement import PLACE_LABELS, NodeGroup, legal_names, value_of

GPU_FILES = "/run/nvidia/drivers"  # where the peer-memory driver's image looks, wherever they lie
PEER_READY = "/.driver-ready"  # which that image makes when its module is loaded
# By it later images leave their modules loaded when the pod ends; earlier images do not read it.
_STAY_LOADED = ("RESTORE_DRIVER_ON_POD_TERMINATION", "false")
_PEER_GRACE = 300  # seconds


def driver_objects(
    policy: operator.ClusterPolicy, groups: Sequence[NodeGroup], values: Values | None = None
) -> WantedObjects:
    """Return the DaemonSets of the driver, one for each group of nodes."""
    make = partial(_ofed_daemon_set, policy, policy.driver) if policy.driver else None
    return _of_groups("ofed-driver", make, groups, values)


def peer_objects(
    policy: operator.ClusterPolicy, groups: Sequence[NodeGroup], values: Values | None = None
) -> WantedObjects:
    """Return the DaemonSets of the peer-memory driver, one for each group of nodes."""
    make = partial(_peer_daemon_set, policy, policy.peer_driver) if policy.peer_driver else None
    return _of_groups("nv-peer-mem-driver", make, groups, values)


def driver_image(section: operator.PolicyDriver, group: NodeGroup) -> str:
    """Return the name of the driver's image for a group of nodes, in the form of its release."""
    image, contract = section.image, operator.contract_of(section.image)
    form = contract.kernel_form if section.precompiled and contract.kernel_form else contract.form
    by_tag = form.format(
        repository=image.repository,
        image=image.image,
        version=image.version,
        architecture=group.architecture,
        system=f"{group.distribution}{group.release}",
        kernel=group.kernel,
    )
    return named(image, by_tag)


def _of_groups(
    name: str,
    make: Callable[[str, NodeGroup], Json] | None,
    groups: Sequence[NodeGroup],
    values: Values | None,
) -> WantedObjects:
    """Return the DaemonSets that `make` makes, one for each group; none if `make` is None.

    Each has the privileged account where the cluster needs one.
    """
    if make is None:
        return WantedObjects()
    wanted = [f"{name}-{group.tag}-ds" for group in groups]
    names = legal_names(wanted)
    made = tuple(make(names[one], group) for one, group in zip(wanted, groups, strict=True))
    own = account(values)
    for document in made:
        document["spec"]["template"]["spec"] |= own
    return WantedObjects(made)


def _ofed_daemon_set(
    policy: operator.ClusterPolicy, section: operator.PolicyDriver, name: str, group: NodeGroup
) -> Json:
    contract = operator.contract_of(section.image)
    container = _driver(
        contract.container, driver_image(section, group), contract.ready, "lsmod | grep mlx5_core"
    )
    container["volumeMounts"] = [_mount(each) for each in contract.folders]
    container["env"] = _env(section, contract)
    if section.resources is not None:
        container["resources"] = section.resources
    for probe, fields in section.probes.items():
        container[probe] |= fields
    document = _driver_daemon_set(policy, operator.ComponentName.DRIVER, name, group)
    template = document["spec"]["template"]
    template["metadata"]["labels"] = {**template["metadata"]["labels"], **dict(contract.labels)}
    template["spec"] |= {
        "containers": [container],
        "volumes": [folder(each.name, each.host, each.kind) for each in contract.folders],
        "terminationGracePeriodSeconds": section.grace_seconds,
    }
    if section.env:  # its pods are outdated when it changes, as by another image
        text = json.dumps(section.env, sort_keys=True)
        template["metadata"]["annotations"] = {
            operator.DRIVER_FIELDS: sha256(text.encode()).hexdigest()[:16]
        }
    return document


def _env(section: operator.PolicyDriver, contract: operator.DriverContract) -> list[Json]:
    """Return a driver's variables: usual ones that the policy does not set, then the policy's."""
    own = {entry["name"] for entry in section.env}
    usual = (_STAY_LOADED, *contract.env)
    return [
        *({"name": name, "value": value} for name, value in usual if name not in own),
        *section.env,
    ]


def _mount(shared: operator.HostFolder) -> Json:
    made = mount(shared.name, shared.mount, shared.propagation)
    return made | ({"readOnly": True} if shared.read_only else {})


def _peer_daemon_set(
    policy: operator.ClusterPolicy, section: operator.PeerDriverSection, name: str, group: NodeGroup
) -> Json:
    image = section.image
    mounts = [mount("run-mofed", operator.DRIVER_FILES, "HostToContainer")]
    volumes = [folder("run-mofed", operator.DRIVER_FILES)]
    if section.gpu_driver_path:
        mounts.append(mount("run-nvidia", GPU_FILES, "HostToContainer"))
        volumes.append(folder("run-nvidia", section.gpu_driver_path))
    container = _driver(
        "nv-peer-mem-driver-container",
        # The same form in all releases that had such an image, 0.1.0 to 23.4.
        named(image, f"{image.repository}/{image.image}-{image.version}:{group.tag}"),
        PEER_READY,
        "lsmod | grep nv_peer_mem",
    )
    container["volumeMounts"] = mounts
    document = _driver_daemon_set(policy, operator.ComponentName.PEER_DRIVER, name, group)
    document["spec"]["template"]["spec"] |= {
        "containers": [container],
        "volumes": volumes,
        "terminationGracePeriodSeconds": _PEER_GRACE,
    }
    return document


def _driver_daemon_set(
    policy: operator.ClusterPolicy, component: operator.ComponentName, name: str, group: NodeGroup
) -> Json:
    """Return the DaemonSet that both drivers start from.

    The DaemonSet's pods are exchanged as operator/rules/upgrade decides, or by hand.
    """
    document = daemon_set(policy, component, name, {PLACE_LABELS[component]: value_of(group)})
    document["spec"]["updateStrategy"] = {"type": "OnDelete"}
    document["metadata"]["ownerReferences"] = []
    return document


def _driver(name: str, image: str, ready: str, loaded: str) -> Json:
    """Return a driver's container, with probes of the file `ready` and the command `loaded`."""
    # 0.1.0 gives a look one second and ends the driver, and so all verbs of the node, at the first
    # one that is late: a busy node is late.
    patience = {"timeoutSeconds": 30, "failureThreshold": 3}
    check = {"exec": {"command": ["sh", "-c", loaded]}, "periodSeconds": 30, **patience}
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {"privileged": True, "seLinuxOptions": {"level": "s0"}},
        "startupProbe": {
            "exec": {"command": ["sh", "-c", f"ls {ready}"]},
            "initialDelaySeconds": 10,
            "periodSeconds": 10,
            "timeoutSeconds": 30,
            "failureThreshold": 120,  # building for a kernel takes its time
        },
        "livenessProbe": check,
        "readinessProbe": dict(check),
    }


# The users of a driver: pods that hold cards, and the node itself.

# Plugins whose devices are no RDMA cards, by the names that their own documents give.
_HARMLESS = re.compile(
    r"(nvidia|amd)\.com/(gpu|gpu\.shared|mig-[\w.-]+|vgpu|pgpu)"
    r"|aliyun\.com/gpu-[\w.-]+"
    r"|habana\.ai/gaudi|google\.com/tpu|aws\.amazon\.com/neuron[\w.-]*"
    r"|gpu\.intel\.com/[\w.-]+"
    r"|vke\.volcengine\.com/m?gpu-[\w.-]+"
    r"|devices\.kubevirt\.io/(kvm|tun|vhost-net|vhost-vsock|sev)"
    r"|(smarter-devices|github\.com)/fuse"
)


def is_share(resource: str, offered: Collection[str]) -> bool:
    """Return whether a resource may stand for RDMA cards: an offered one, or an unknown one.

    ``cpu``, ``memory`` and ``hugepages-2Mi`` have no domain and are the kubelet's own.
    """
    if resource in offered:
        return True
    return "/" in resource and not _HARMLESS.fullmatch(resource)


def needs(report: NodeReport, addresses: Collection[str]) -> tuple[str, ...]:
    """Return what a node uses its RDMA cards for, in phrases.

    `addresses` are those by which the node is known. Traffic of kubelet and pods with the API
    server has such an address.
    """
    return tuple(
        f"{card.name}: {what}"
        for card in (*report.cards, *report.rejected)
        for what in (
            *card.carries,
            *(f"the node's address {a} is on it" for a in card.addresses if a in addresses),
        )
    )
