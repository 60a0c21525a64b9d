"""Manifests: which objects a document holds, and where in them pods are described.

First step of `kube-rdma config check` for files that people apply. Kinds of other projects are
known by the place of their pods alone; what else is in them those projects check.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kube_base.errors import Refused
from kube_base.frozen import Frozen
from kube_rdma.api.text.document import Document, Path, Section, section

EACH = "*"  # in a path: every entry of a list or object

_TEMPLATE: Path = ("spec", "template")

# Group and kind -> where the pods are. Groups without their version.
_PODS: Mapping[tuple[str, str], tuple[Path, ...]] = {
    ("", "Pod"): ((),),
    ("", "PodTemplate"): (("template",),),
    ("", "ReplicationController"): (_TEMPLATE,),
    **{
        ("apps", kind): (_TEMPLATE,)
        for kind in ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet")
    },
    ("batch", "Job"): (_TEMPLATE,),
    ("batch", "CronJob"): (("spec", "jobTemplate", *_TEMPLATE),),
    **{
        ("kubeflow.org", f"{kind}Job"): (("spec", f"{field}ReplicaSpecs", EACH, "template"),)
        for kind, field in {
            "MPI": "mpi",
            "PyTorch": "pytorch",
            "TF": "tf",
            "XGBoost": "xgb",
            "Paddle": "paddle",
            "JAX": "jax",
        }.items()
    },
    ("batch.volcano.sh", "Job"): (("spec", "tasks", EACH, "template"),),
    ("jobset.x-k8s.io", "JobSet"): (("spec", "replicatedJobs", EACH, "template", *_TEMPLATE),),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): (
        ("spec", "leaderWorkerTemplate", "leaderTemplate"),
        ("spec", "leaderWorkerTemplate", "workerTemplate"),
    ),
}
_OPTIONAL = frozenset(("leaderTemplate",))


class Manifest(Frozen):
    """An object: its kind, its name, and the part of the text that it stands in."""

    group: str
    kind: str
    namespace: str  # empty where the object says none
    name: str
    document: Document

    @property
    def line(self) -> int:
        """Where it begins."""
        return self.document.place(()).line

    def is_a(self, group: str, kind: str) -> bool:
        """Whether it is of this kind, in whatever version."""
        return (self.group, self.kind) == (group, kind)


def manifests(document: Document) -> tuple[Manifest, ...]:
    """The objects of a document: itself, or the items of a List; none where it is no object."""
    value = document.value
    if not isinstance(value, dict):
        return ()
    kind, version = value.get("kind"), value.get("apiVersion")
    if not isinstance(kind, str) or not isinstance(version, str):
        return ()
    items = value.get("items")
    if kind.endswith("List") and isinstance(items, list):
        inner = (section(document, ("items", number)) for number in range(len(items)))
        return tuple(one for part in inner for one in manifests(part))
    group = version.rpartition("/")[0]
    metadata = value.get("metadata")
    names = metadata if isinstance(metadata, dict) else {}
    return (Manifest(group, kind, _text(names, "namespace"), _name(names), document),)


def pods(manifest: Manifest) -> Iterator[Section]:
    """The parts of an object that are pods; raise Refused where it has to have one and has none."""
    for pattern in _PODS.get((manifest.group, manifest.kind), ()):
        for path in _paths(manifest.document, pattern, ()):
            part = section(manifest.document, path)
            if part.value is not None:
                yield part
            elif path[-1] not in _OPTIONAL:
                raise Refused(
                    f"the {manifest.kind} has no template for its pods here",
                    remedy=f"Write {path[-1]}, with metadata and spec of a pod",
                    where=manifest.document.where(path),
                )


def _paths(document: Document, pattern: Path, begin: Path) -> Iterator[Path]:
    """The paths that a pattern means in the document."""
    if EACH not in pattern:
        yield (*begin, *pattern)
        return
    at = pattern.index(EACH)
    base = (*begin, *pattern[:at])
    value = section(document, base).value
    keys: list[str | int] = []
    if isinstance(value, dict):
        keys += value
    elif isinstance(value, list):
        keys += range(len(value))
    for key in keys:
        yield from _paths(document, pattern[at + 1 :], (*base, key))


def _name(metadata: Mapping[str, object]) -> str:
    return _text(metadata, "name") or _text(metadata, "generateName")


def _text(metadata: Mapping[str, object], field: str) -> str:
    value = metadata.get(field)
    return value if isinstance(value, str) else ""
