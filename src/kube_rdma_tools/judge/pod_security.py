"""The controls of the Pod Security Standards, each as a function that names what breaks it.

They follow kubernetes.io "Pod Security Standards", as of 1.36. judge/admission.py applies the
controls of the level that a namespace has.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, TypeAlias

from kube_base.frozen import Frozen
from kube_rdma_tools.judge.environment import SecurityLevel
from kube_rdma_tools.judge.judged_pods import ARMOR_ANNOTATION, JudgedContainer, JudgedPod

HOST_FIELDS = ("hostNetwork", "hostPID", "hostIPC")
_ADDABLE = frozenset(
    (
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    )
)
_BIND = frozenset(("NET_BIND_SERVICE",))
_SELINUX_TYPES = ("", "container_t", "container_init_t", "container_kvm_t", "container_engine_t")
_SYSCTLS = frozenset(
    (
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.ip_unprivileged_port_start",
        "net.ipv4.ping_group_range",
        "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_keepalive_intvl",
        "net.ipv4.tcp_keepalive_probes",
        "net.ipv4.tcp_keepalive_time",
        "net.ipv4.tcp_rmem",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.tcp_wmem",
    )
)
_VOLUMES = frozenset(
    (
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "image",
        "persistentVolumeClaim",
        "projected",
        "secret",
    )
)
_PROBES = ("startupProbe", "readinessProbe", "livenessProbe")
_PROFILES = ("RuntimeDefault", "Localhost")


class Breach(Frozen):
    """A field that violates a control of Pod Security; `value` is its present value."""

    field: str
    value: str
    container: JudgedContainer | None = None


Breaches: TypeAlias = Iterator[Breach]


class SecurityControl(Frozen):
    """A control of a Pod Security level; `breaches` yields the fields of a pod that violate it."""

    level: SecurityLevel
    name: str
    breaches: Callable[[JudgedPod], Breaches]


def host_namespaces(pod: JudgedPod) -> Breaches:
    """Yield the pod's fields that share a namespace of the host."""
    for name in HOST_FIELDS:
        if pod.spec.get(name):
            yield Breach(name, "true")


def privileged_containers(pod: JudgedPod) -> Breaches:
    """Yield the containers that are privileged."""
    for container in pod.containers:
        if container.security.get("privileged"):
            yield Breach("securityContext.privileged", "true", container)


def host_volumes(pod: JudgedPod) -> Breaches:
    """Yield a breach for each hostPath volume."""
    for name, folder in pod.host_folders.items():
        yield Breach(f"volumes[{name}].hostPath", str(folder["path"]))


def host_ports(pod: JudgedPod) -> Breaches:
    """Yield the host's ports that containers declare; with hostNetwork all declared ports count."""
    for container in pod.containers:
        for port in container.body.get("ports") or ():
            number = port.get("hostPort")
            if pod.spec.get("hostNetwork"):
                number = number or port["containerPort"]
            if number:
                yield Breach("ports", str(number), container)


def added_capabilities(pod: JudgedPod, allowed: Collection[str]) -> Breaches:
    """Yield a breach for each container that adds capabilities other than `allowed`."""
    for container in pod.containers:
        added = (container.security.get("capabilities") or {}).get("add") or ()
        if beyond := [name for name in added if name not in allowed]:
            yield Breach("securityContext.capabilities.add", ", ".join(beyond), container)


def contexts(pod: JudgedPod, name: str) -> Iterator[tuple[JudgedContainer | None, dict[str, Any]]]:
    """Yield the field `name` of each security context that sets it, with its container.

    The pod's own security context comes first, with None.
    """
    for container in (None, *pod.containers):
        part = (container or pod).security.get(name)
        if part:
            yield container, part


def _app_armor(pod: JudgedPod) -> Breaches:
    for container, profile in contexts(pod, "appArmorProfile"):
        if profile["type"] not in _PROFILES:
            yield Breach("securityContext.appArmorProfile.type", profile["type"], container)
    for container in pod.containers:
        older = pod.annotations.get(f"{ARMOR_ANNOTATION}{container.name}", "")
        if older and older != "runtime/default" and not older.startswith("localhost/"):
            yield Breach("securityContext.appArmorProfile", f"annotation {older}", container)


def _selinux(pod: JudgedPod) -> Breaches:
    for container, options in contexts(pod, "seLinuxOptions"):
        if options.get("type", "") not in _SELINUX_TYPES:
            yield Breach("securityContext.seLinuxOptions.type", options["type"], container)
        for name in ("user", "role"):
            if options.get(name):
                yield Breach(f"securityContext.seLinuxOptions.{name}", options[name], container)


def _unconfined(pod: JudgedPod) -> Breaches:
    for container, profile in contexts(pod, "seccompProfile"):
        if profile["type"] not in _PROFILES:
            yield Breach("securityContext.seccompProfile.type", profile["type"], container)


def _proc_mount(pod: JudgedPod) -> Breaches:
    for container in pod.containers:
        mount = container.security.get("procMount", "Default")
        if mount != "Default":
            yield Breach("securityContext.procMount", mount, container)


def _probe_hosts(pod: JudgedPod) -> Breaches:
    """Yield probes and hooks that name a host, for which the kubelet would call that host."""
    for container in pod.containers:
        hooks = container.body.get("lifecycle") or {}
        probes = {name: container.body.get(name) for name in _PROBES} | hooks
        for name, probe in probes.items():
            for kind in ("httpGet", "tcpSocket"):
                host = ((probe or {}).get(kind) or {}).get("host")
                if host:
                    yield Breach(f"{name}.{kind}.host", host, container)


def _sysctls(pod: JudgedPod) -> Breaches:
    for entry in pod.security.get("sysctls") or ():
        if entry["name"] not in _SYSCTLS:
            yield Breach("securityContext.sysctls", entry["name"])


def volume_types(pod: JudgedPod, allowed: Collection[str]) -> Breaches:
    """Yield volumes of a type other than `allowed`."""
    for volume in pod.spec.get("volumes") or ():
        for kind in volume.keys() - {"name"} - set(allowed):
            yield Breach(f"volumes[{volume['name']}]", kind)


def _escalation(pod: JudgedPod) -> Breaches:
    for container in pod.containers:
        if container.security.get("allowPrivilegeEscalation") is not False:
            yield Breach("securityContext.allowPrivilegeEscalation", "not false", container)


def _root(pod: JudgedPod) -> Breaches:
    for container in pod.containers:
        if not pod.effective(container, "runAsNonRoot"):
            yield Breach("securityContext.runAsNonRoot", "not true", container)
        if pod.effective(container, "runAsUser") == 0:
            yield Breach("securityContext.runAsUser", "0", container)


def _seccomp(pod: JudgedPod) -> Breaches:
    for container in pod.containers:
        profile = pod.effective(container, "seccompProfile") or {}
        if profile.get("type") not in _PROFILES:
            yield Breach("securityContext.seccompProfile.type", "not set", container)


def _dropped(pod: JudgedPod) -> Breaches:
    for container in pod.containers:
        if "ALL" not in ((container.security.get("capabilities") or {}).get("drop") or ()):
            yield Breach("securityContext.capabilities.drop", "not ALL", container)


_BASELINE = (
    ("host namespaces", host_namespaces),
    ("privileged containers", privileged_containers),
    ("capabilities", lambda pod: added_capabilities(pod, _ADDABLE)),
    ("hostPath volumes", host_volumes),
    ("host ports", host_ports),
    ("AppArmor", _app_armor),
    ("SELinux", _selinux),
    ("/proc mount type", _proc_mount),
    ("seccomp", _unconfined),
    ("host probes", _probe_hosts),
    ("sysctls", _sysctls),
)
_RESTRICTED = (
    ("volume types", lambda pod: volume_types(pod, _VOLUMES)),
    ("privilege escalation", _escalation),
    ("running as non-root", _root),
    ("seccomp (restricted)", _seccomp),
    ("dropped capabilities", _dropped),
    ("capabilities (restricted)", lambda pod: added_capabilities(pod, _BIND)),
)
CONTROLS = (
    *(SecurityControl(SecurityLevel.BASELINE, name, breaches) for name, breaches in _BASELINE),
    *(SecurityControl(SecurityLevel.RESTRICTED, name, breaches) for name, breaches in _RESTRICTED),
)


def controls(level: SecurityLevel) -> tuple[SecurityControl, ...]:
    """Return the controls of a level: `privileged` has none, `restricted` also the baseline's."""
    if level is SecurityLevel.PRIVILEGED:
        return ()
    return tuple(
        control
        for control in CONTROLS
        if level is SecurityLevel.RESTRICTED or control.level is level
    )
