"""Rules about a node's system: SELinux types of containers, and folders that its programs use.

A container with a type that the node's policy lacks is never created. One that mounts another
folder than the node's programs use runs, but they do not read what it writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kube_rdma.model.install import Json
from kube_rdma_tools.judge.environment import IN_MEMORY, Environment, NodePaths, SelinuxPolicy
from kube_rdma_tools.judge.judged_pods import JudgedContainer, JudgedPod, judged_pods
from kube_rdma_tools.judge.scheduling import takes
from kube_rdma_tools.judge.violation import Violation

# A constant of the kubelet, whatever its root is (kubernetes/kubernetes issue 120626). MicroK8s has
# a link there (canonical/microk8s pull request 2098).
_DEVICE_PLUGINS = "/var/lib/kubelet/device-plugins"
_CREATING = ("DirectoryOrCreate", "FileOrCreate")


def selinux_type(objects: Sequence[Json], environment: Environment) -> Iterator[Violation]:
    """The node's SELinux policy has no type of this name: the container is never created."""
    for pod, policy in _labelled(objects, environment):
        for container in pod.containers:
            name = _named_type(pod, container)
            if name and name not in policy.types:
                yield pod.violation(
                    "securityContext.seLinuxOptions.type",
                    f"the policy of {policy.name} has no type {name}",
                    f"leave the type out, or name one of {', '.join(sorted(policy.types))}",
                    container,
                )


def selinux_reach(objects: Sequence[Json], environment: Environment) -> Iterator[Violation]:
    """The container's SELinux type does not let it use a folder that it mounts."""
    for pod, policy in _labelled(objects, environment):
        for container in pod.containers:
            name = _named_type(pod, container) or policy.default
            # A privileged container without a type is not confined.
            if container.security.get("privileged") or name not in policy.confined:
                continue
            folders = _folders(pod, container)
            beyond = [path for path in folders if not _below(path, policy.confined[name])]
            if beyond:
                yield pod.violation(
                    "securityContext.seLinuxOptions.type",
                    f"type {name} of {policy.name} does not reach {', '.join(beyond)}",
                    f"name one of {', '.join(sorted(policy.types - policy.confined.keys()))}",
                    container,
                )


def _labelled(
    objects: Sequence[Json], environment: Environment
) -> Iterator[tuple[JudgedPod, SelinuxPolicy]]:
    """Yield each pod with every distinct SELinux policy of the nodes that accept it."""
    for pod in judged_pods(objects):
        policies: set[str] = set()
        for node in environment.nodes:
            policy = node.selinux
            if policy and policy.name not in policies and takes(node, pod):
                policies.add(policy.name)
                yield pod, policy


def _named_type(pod: JudgedPod, container: JudgedContainer) -> str:
    """Return the SELinux type that a container asks for, "" if it asks for none."""
    options = pod.effective(container, "seLinuxOptions") or {}
    return str(options.get("type", ""))


def _folders(pod: JudgedPod, container: JudgedContainer) -> list[str]:
    """Return the paths of the host's folders that a container mounts."""
    folders = pod.host_folders
    return [
        str(folders[mount["name"]]["path"])
        for mount in container.body.get("volumeMounts") or ()
        if mount["name"] in folders
    ]


def read_only_folder(objects: Sequence[Json], environment: Environment) -> Iterator[Violation]:
    """A folder that has to be made or written is on a read-only file system."""
    for pod in judged_pods(objects):
        written = {
            mount["name"]
            for container in pod.containers
            for mount in container.body.get("volumeMounts") or ()
            if not mount.get("readOnly")
        }
        for name, folder in pod.host_folders.items():
            wanted = name in written or folder.get("type") in _CREATING
            if wanted and _is_read_only(folder["path"], environment.paths):
                yield pod.violation(
                    f"volumes[{name}].hostPath.path",
                    f"{folder['path']} is read-only on these nodes",
                    "mount a folder that can be written, or leave the mount out",
                )


def _is_read_only(path: str, paths: NodePaths) -> bool:
    """Decide whether a path on the node is read-only, by its longest matching parent folder."""
    writable = max(
        (len(top) for top in (*paths.writable, *IN_MEMORY) if _below(path, (top,))), default=0
    )
    return any(len(top) > writable for top in paths.read_only if _below(path, (top,)))


def other_folder(objects: Sequence[Json], environment: Environment) -> Iterator[Violation]:
    """The node's programs look in another folder than the one that is mounted."""
    places = _places(environment.paths)
    for pod in judged_pods(objects):
        for name, folder in pod.host_folders.items():
            wanted = places.get(name, ())
            # A folder that holds the right one will do.
            if wanted and not any(_below(path, (folder["path"],)) for path in wanted):
                yield pod.violation(
                    f"volumes[{name}].hostPath.path",
                    f"{folder['path']} is mounted, and the node uses {' and '.join(wanted)}",
                    "let a value or the distribution set the folder",
                )


def _places(paths: NodePaths) -> dict[str, tuple[str, ...]]:
    """Return the node's folders that volumes of kube-rdma's pods should mount, by volume."""
    return {
        "cni-conf": (paths.cni_conf,),
        "cni-bin": (paths.cni_binaries,),
        "runtime": (paths.runtime,),
        "cdi": paths.cdi,
        "pod-resources": (f"{paths.kubelet}/pod-resources",),
        "device-plugins": (_DEVICE_PLUGINS,),
        "device-plugin": (_DEVICE_PLUGINS,),
    }


def _below(path: str, tops: Sequence[str]) -> bool:
    """Decide whether a path is in one of these folders, or is one of them."""
    whole = path.rstrip("/") + "/"
    return any(whole.startswith(top.rstrip("/") + "/") for top in tops)
