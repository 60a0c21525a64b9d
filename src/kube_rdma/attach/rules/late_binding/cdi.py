"""Whether a CDI device that Allocate names reaches the container, or is silently forgotten.

Kubelet and runtime both have to know the field: an old kubelet drops it, a runtime with CDI off
never looks at it, and the container starts without its devices. So what is not known to work is
taken not to (docs/decisions/0009).
"""

from __future__ import annotations

import re

from kube_rdma.model.late_binding.runtime import Runtime

Version = tuple[int, int]

# KEP-4009: CDI devices of device plugins. Alpha in 1.28, on by default since 1.29, GA in 1.31.
KUBELET: Version = (1, 29)
# CDI is on unless switched off (docs/containerd-2.0.md); since 2.4 there is no switch.
CONTAINERD_ON: Version = (2, 0)
# The CRI field is read where enable_cdi is true (containerd#8252).
CONTAINERD: Version = (1, 7)
# The CRI field is read (cri-o#6944, May 2023); from 1.23 on there were only annotations.
CRIO: Version = (1, 28)

_VERSION = re.compile(r"v?(\d{1,9})\.(\d{1,9})")


def cdi_works(kubelet_version: str | None, runtime: Runtime | None) -> tuple[bool, str]:
    """Whether a pod gets CDI devices of a device plugin, and a sentence that says why."""
    kubelet = _version(kubelet_version)
    if kubelet is None:
        return False, "The version of the kubelet is not known."
    if kubelet < KUBELET:
        return False, f"The kubelet is {kubelet_version}, CDI devices need {_text(KUBELET)}."
    if runtime is None:
        return False, "The container runtime is not known."
    version = _version(runtime.version)
    if version is None:
        return False, f"The version {runtime.version!r} of {runtime.name} cannot be read."
    return _RUNTIMES.get(runtime.name, _other)(runtime, version)


def _containerd(runtime: Runtime, version: Version) -> tuple[bool, str]:
    who = f"containerd is {runtime.version}"
    if version < CONTAINERD:
        return False, f"{who}, CDI devices need {_text(CONTAINERD)} with enable_cdi."
    if runtime.cdi is False:
        return False, f"{who} and CDI is off in its configuration (enable_cdi)."
    if runtime.cdi is None and version < CONTAINERD_ON:
        return False, f"{who} and does not say whether CDI is on (enable_cdi)."
    return True, f"{who} and CDI is on."


def _crio(runtime: Runtime, version: Version) -> tuple[bool, str]:
    if version < CRIO:
        return False, f"cri-o is {runtime.version}, CDI devices need {_text(CRIO)}."
    return True, f"cri-o is {runtime.version}."


def _other(runtime: Runtime, _: Version) -> tuple[bool, str]:
    return False, f"It is not known that {runtime.name} has CDI devices."


_RUNTIMES = {"containerd": _containerd, "cri-o": _crio}  # by the name that they have in the CRI


def _version(text: str | None) -> Version | None:
    match = _VERSION.match(text or "")
    return (int(match[1]), int(match[2])) if match else None


def _text(version: Version) -> str:
    return f"{version[0]}.{version[1]}"
