"""How the texts among an installation's values are written: images, folders, names, lists, sizes.

Each form has the sentence for a text that does not have it. A list in one text has commas, for it
becomes a part of an expression of an admission policy.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from pydantic import Field

from kube_rdma.lib.text.words import TextForm

Repository: TypeAlias = Annotated[
    str,
    TextForm(
        r"[a-z0-9][a-zA-Z0-9.-]*(:[0-9]{1,5})?(/[a-z0-9._-]+)+",
        "a registry with a repository, without a tag",
        "registry.example.com/rdma/kube-rdma",
    ),
]
Tag: TypeAlias = Annotated[
    str, TextForm(r"[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127}", "a tag of an image", "0.1.0")
]
Digest: TypeAlias = Annotated[
    str, TextForm(r"(sha256:[0-9a-f]{64})?", "a digest of an image", f"sha256:{'0' * 64}")
]
Folder: TypeAlias = Annotated[
    str, TextForm(r"/[^\s:]*[^\s:/]", "a folder of the host", "/opt/cni/bin")
]
Resources: TypeAlias = Annotated[
    str,
    TextForm(
        r"([a-zA-Z0-9./*-]+(,[a-zA-Z0-9./*-]+)*)?",
        "a list of resources, with commas between them",
        "rdma/*,vke.volcengine.com/rdma",
    ),
]
Names: TypeAlias = Annotated[
    str,
    TextForm(
        r"([a-zA-Z0-9.-]+(,[a-zA-Z0-9.-]+)*)?",
        "a list of names, with commas between them",
        "vepfs.csi.volcengine.com",
    ),
]
Size: TypeAlias = Annotated[
    str, TextForm(r"[1-9][0-9]{0,11}([kMGTP]|[KMGTP]i)?", "a size of memory", "8Gi")
]
KubernetesVersion: TypeAlias = Annotated[
    str,
    TextForm(r"(v?1\.[0-9]{1,2}(\.[0-9]{1,3}([+-].*)?)?)?", "a version of Kubernetes", "1.28"),
]
ObjectName: TypeAlias = Annotated[
    str, TextForm(r"([a-z0-9]([a-z0-9.-]*[a-z0-9])?)?", "the name of an object", "kube-rdma")
]
OptionalLabel: TypeAlias = Annotated[
    str,
    TextForm(
        r"([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)?",
        "a name of lower-case letters, digits and dashes, at most 63",
        "kube-rdma",
    ),
]
# Suffixes such as -retirement-drivers stand behind it, and a label's value has 63 characters.
FullName: TypeAlias = Annotated[
    str,
    TextForm(
        r"([a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?)?",
        "a name of lower-case letters, digits and dashes, at most 40",
        "rdma-a",
    ),
]
SelinuxType: TypeAlias = Annotated[
    str, TextForm(r"([a-z][a-z0-9_]{0,62})?", "an SELinux type", "spc_t")
]
SeccompProfile: TypeAlias = Annotated[
    str,
    TextForm(
        r"([A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*)?",
        "a file below the kubelet's folder seccomp",
        "kube-rdma/agent.json",
    ),
]
Replicas: TypeAlias = Annotated[int, Field(ge=1, le=9)]
Object: TypeAlias = dict[str, Any]  # as Kubernetes has it, which checks it itself
