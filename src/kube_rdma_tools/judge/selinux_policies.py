"""The SELinux types of five policies: which a container can have, and where each can write.

A type that the loaded policy lacks ends the start of a container with "invalid argument", in
permissive mode too (flatcar/Flatcar issue 891).
"""

from __future__ import annotations

from kube_rdma_tools.judge.environment import IN_MEMORY, SelinuxPolicy

_DEVICE_PLUGINS = ("/var/lib/kubelet/device-plugins",)

# RHEL, CoreOS, Fedora and Amazon Linux 2023 load it: containers/container-selinux container.te,
# types of the attribute container_domain. A device plugin's type reaches the kubelet's sockets and
# devices alone (intel/intel-device-plugins-for-kubernetes issue 762).
CONTAINER_SELINUX = SelinuxPolicy(
    "container-selinux",
    frozenset(
        (
            "container_t",
            "container_init_t",
            "container_kvm_t",
            "container_engine_t",
            "container_logreader_t",
            "container_logwriter_t",
            "container_userns_t",
            "container_device_t",
            "container_device_plugin_t",
            "container_device_plugin_init_t",
            "spc_t",
        )
    ),
    {
        "container_t": (),
        "container_init_t": (),
        "container_kvm_t": (),
        "container_userns_t": (),
        "container_logreader_t": (),
        "container_logwriter_t": ("/var/log",),
        "container_device_t": ("/dev",),
        "container_device_plugin_t": (*_DEVICE_PLUGINS, "/dev"),
        "container_device_plugin_init_t": (*_DEVICE_PLUGINS, "/dev"),
    },
)
# bottlerocket-os/bottlerocket-core-kit packages/selinux-policy, subject.cil, object.cil, fs.cil,
# rules.cil at 440fd045 (2026): spc_t is another name of control_t. All container types write what
# lies on local storage and on a tmpfs of its own, which /etc/cni is (packages/release
# etc-cni.mount); /etc itself is for trusted subjects, of containers super_t alone.
_LOCAL = (*IN_MEMORY, "/var", "/opt", "/mnt", "/local", "/etc/cni")
BOTTLEROCKET = SelinuxPolicy(
    "Bottlerocket",
    frozenset(("container_t", "control_t", "spc_t", "super_t")),
    {"container_t": _LOCAL, "control_t": _LOCAL, "spc_t": _LOCAL},
)
# flatcar/scripts pull request 917 (2023-06) replaced the policy "virt" by the reference policy's
# "container": SELinuxProject/refpolicy policy/modules/services/container.te has no type for device
# plugins. Flatcar is permissive as it comes, so nothing is confined.
_REFERENCE = frozenset(
    (
        "container_t",
        "svirt_lxc_net_t",
        "container_engine_t",
        "spc_t",
        "spc_user_t",
    )
)
FLATCAR = SelinuxPolicy("Flatcar", _REFERENCE, {})
# The same reference policy, enforced: Debian's selinux-policy-default, where no rule lets
# container_t out of container files.
DEBIAN = SelinuxPolicy("Debian", _REFERENCE, {"container_t": (), "svirt_lxc_net_t": ()})
# siderolabs/talos internal/pkg/selinux/policy/selinux/services/pods.cil at 775a66f6 (2026) and
# cri.cil: a pod writes CNI's folders and the kubelet's, not the sockets of containerd.
_OF_PODS = ("/var/lib/kubelet", "/etc/cni", "/opt/cni", "/var/mnt", "/var/log", "/sys", "/proc")
TALOS = SelinuxPolicy(
    "Talos",
    frozenset(("pod_t", "pod_privileged_t", "spc_t")),
    {"pod_t": _OF_PODS},
    "pod_t",
)
SELINUX_POLICIES = (CONTAINER_SELINUX, BOTTLEROCKET, FLATCAR, DEBIAN, TALOS)
