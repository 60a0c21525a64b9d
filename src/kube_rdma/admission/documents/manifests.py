"""Finds the objects that a document holds, and the pods in each of them.

`kube-rdma config check` and `explain` begin with it for files that people apply. Kinds of other
projects are searched for whatever looks like a pod's spec; pod_manifest reads the pods.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from kube_base.errors import Refused
from kube_base.frozen import Frozen
from kube_rdma.lib.text.document import Document, Path, TextPosition, Value, section
from kube_rdma.model.admission import AnnotationAbove


class Manifest(Frozen):
    """One Kubernetes object of a file: its kind, name and part of the text."""

    group: str
    kind: str
    namespace: str  # empty where the object says none
    name: str
    document: Document

    def is_a(self, group: str, kind: str) -> bool:
        """Decide whether the object is of this group and kind, whatever its version."""
        return (self.group, self.kind) == (group, kind)


def manifests(document: Document) -> tuple[Manifest, ...]:
    """Return the objects of a document: itself, or the items of a List; none if it is no object."""
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
    name = _text(names, "name") or _text(names, "generateName")
    return (Manifest(group, kind, _text(names, "namespace"), name, document),)


def _text(metadata: Mapping[str, object], field: str) -> str:
    value = metadata.get(field)
    return value if isinstance(value, str) else ""


# The places in an object where pods are described, whatever kind makes them.

_TEMPLATE: Path = ("spec", "template")
_OWN: Mapping[tuple[str, str], Path] = {
    ("", "Pod"): (),
    ("", "PodTemplate"): ("template",),
    ("", "ReplicationController"): _TEMPLATE,
    ("apps", "Deployment"): _TEMPLATE,
    ("apps", "ReplicaSet"): _TEMPLATE,
    ("apps", "StatefulSet"): _TEMPLATE,
    ("apps", "DaemonSet"): _TEMPLATE,
    ("batch", "Job"): _TEMPLATE,
    ("batch", "CronJob"): ("spec", "jobTemplate", *_TEMPLATE),
}
"""Kinds of Kubernetes itself, by group: in these a template that is missing is a fault."""

_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
_OF_CONTAINERS = frozenset(("name", "image", "resources", "command", "env"))
_RESOURCES = ("resources", "resourcesPerNode")  # the latter of kubeflow/trainer's TrainJob

# Below these a pod is changed that stands elsewhere: podTemplateOverrides and runtimePatches of a
# TrainJob, templateDefaults of an Argo Workflow.
_CHANGES = re.compile(r"(?:overrides?|patch|patches|defaults)$", re.IGNORECASE)
_KSERVE = "serving.kserve.io"
_TO_PODS = frozenset(((_KSERVE, "InferenceService"), (_KSERVE, "LLMInferenceService")))
"""Kinds whose own annotations their controller writes to pods: kserve/kserve@v0.15
pkg/controller/v1beta1/inferenceservice/components/predictor.go, and later v1alpha2/llmisvc."""

_OF_PATTERNS = ("kyverno.io", "gatekeeper.sh", "registration.k8s.io", "apiextensions.k8s.io")
"""Groups whose objects have patterns and schemas of pods (``"<=8"``), and no pods."""

_BASES = re.compile(r"Runtime(?:Config)?$")  # kinds whose pods others complete


_AROUND = frozenset(
    ("spec", "template", "podTemplate", "jobTemplate", "podSpec", "extraPodSpec", "mainContainer")
)
"""Fields around a pod that say nothing of which one it is."""


class PodParts(Frozen):
    """The paths in an object of the parts of one pod: metadata, spec, containers."""

    metadata: Path
    spec: Path
    whole: bool
    alone: Path = ()  # of its only container, where no list has it
    resources: str = "resources"  # how the container alone calls them
    custom: Path = ()  # of resources elsewhere, whose devices stand in fields `custom`

    def place_of(self, path: Path) -> Path:
        """Return the path in the whole object of a field of the pod."""
        if path[:1] == ("metadata",):
            return (*self.metadata, *path[1:])
        inside = path[1:]
        if not self.alone or inside[:2] != ("containers", 0):
            return (*self.spec, *inside) if path else self.alone or self.spec
        field = inside[2:]
        if field[:1] == ("resources",) and self.custom:
            return (*self.custom, *field[1:2], *(("custom",) if field[1:] else ()), *field[2:])
        if field[:1] == ("resources",):
            field = (self.resources, *field[1:])
        return (*self.alone, *field)


class PodSection(Document):
    """A pod inside of an object, as a document with positions in the whole text."""

    object: Document
    parts: PodParts

    @property
    def whole(self) -> bool:
        """Decide whether the object has the whole pod, and not only some of its fields."""
        return self.parts.whole

    @property
    def name(self) -> str:
        """Return the object's name for these pods, such as Worker.

        Return "" where the path to the pods has no name.
        """
        path = self.parts.alone or self.parts.spec
        places = [place for place, step in enumerate(path) if step not in _AROUND]
        last = places[-1] if places else 0
        step = path[last] if places else ""
        if isinstance(step, str):
            return step
        entry = section(self.object, path[: last + 1]).value
        name = _text(entry, "name") if isinstance(entry, dict) else ""
        return name or f"{path[last - 1]}[{step}]"

    @property
    def kind(self) -> str:
        """Return the kind of the object."""
        return str(section(self.object, ("kind",)).value)

    @property
    def copies(self) -> int:
        """Return how many pods the object makes of its template at a time, at least 1."""
        around = section(self.object, self.parts.spec[:-2]).value
        fields = around if isinstance(around, dict) and "template" in self.parts.spec[-2:] else {}
        counts = (fields.get(name) for name in ("replicas", "parallelism"))
        return max((1, *(one for one in counts if isinstance(one, int))))

    def where(self, path: Path, *, key: bool = False) -> str:
        """Return file, line and column of a pod's field, in the whole text."""
        return self.object.where(self.parts.place_of(path), key=key)

    def place(self, path: Path, *, key: bool = False) -> TextPosition:
        """Return line and column of a pod's field, in the whole text."""
        return self.object.place(self.parts.place_of(path), key=key)


def pods(manifest: Manifest) -> Iterator[PodSection]:
    """Yield the pods in an object; raise Refused if its kind must have one and it has none."""
    document = manifest.document
    base = _OWN.get((manifest.group, manifest.kind))
    if base is None and manifest.group.endswith(_OF_PATTERNS):
        return
    if base is None:
        for parts in _Search(manifest).of(document.value, ()):
            yield _section(document, parts)
        return
    part = section(document, base)
    if part.value is None:
        raise Refused(
            f"the {manifest.kind} has no template for its pods here",
            remedy=f"Write {base[-1]}, with metadata and spec of a pod",
            where=document.where(base),
        )
    parts = PodParts((*base, "metadata"), (*base, "spec"), True)
    yield PodSection(document.source, part.value, document.values, document.keys, document, parts)


def is_own(manifest: Manifest) -> bool:
    """Decide whether Kubernetes itself reads the pods of an object, and refuses malformed ones."""
    return (manifest.group, manifest.kind) in _OWN


def copies_annotations(manifest: Manifest) -> bool:
    """Decide whether an object's pods get the object's own annotations."""
    return (manifest.group, manifest.kind) in {("", "Pod"), *_TO_PODS}


def annotations_above(manifest: Manifest, parts: Sequence[PodSection]) -> Iterator[AnnotationAbove]:
    """Yield the annotations at objects around the pods in an object, outermost first."""
    seen: set[Path] = set()
    for part in parts:
        path = part.parts.spec
        for depth in range(len(path)):
            at = (*path[:depth], "metadata")
            annotations = section(manifest.document, (*at, "annotations")).value
            if at in seen or at == part.parts.metadata or not isinstance(annotations, dict):
                continue
            seen.add(at)
            owner = str(path[depth - 1]) if depth else manifest.kind
            for key in annotations:
                yield AnnotationAbove(key, owner, (*at, "annotations", key))


class _Search:
    """A search for pods in an object, in the order of its text."""

    def __init__(self, manifest: Manifest) -> None:
        self._document = manifest.document
        self._base = bool(_BASES.search(manifest.kind))
        self._to_pods = copies_annotations(manifest)

    def of(self, value: Value, path: Path) -> Iterator[PodParts]:
        """Yield the parts of every pod in a value of the object."""
        if isinstance(value, list):
            for number, entry in enumerate(value):
                yield from self.of(entry, (*path, number))
        if not isinstance(value, dict):
            return
        if _is_spec(value):
            parts = self._spec(value, path)
            yield parts
            if parts.spec[-1:] == ("spec",):
                return
        else:
            yield from self._alone(value, path)
        for field, inner in value.items():
            if field not in _CONTAINERS:
                yield from self.of(inner, (*path, field))

    def _spec(self, value: Mapping[str, Value], path: Path) -> PodParts:
        """Return the parts of the pod whose spec, or some fields of it, is at this path."""
        parent = path[:-1]
        if path[-1:] == ("spec",) and parent:
            is_whole = not self._base and not any(_CHANGES.search(str(part)) for part in path)
            return PodParts((*parent, "metadata"), path, is_whole)
        return PodParts(self._metadata(value, path), path, False)

    def _alone(self, value: Mapping[str, Value], path: Path) -> Iterator[PodParts]:
        """Yield the parts of a pod whose only container stands in the object, not in a list."""
        if _asks_devices(_devices(value.get("resources"))):
            spec = (*path, "extraPodSpec")
            main, amounts = (*spec, "mainContainer"), (*path, "resources")
            metadata = self._metadata({}, spec)
            yield PodParts(metadata, spec, False, main, "resources", amounts)
        around = path
        while around and isinstance(around[-1], int):
            around = around[:-1]
        spec = around[:-1]
        for field in _RESOURCES if spec else ():
            if _asks_devices(value.get(field)):
                fields = section(self._document, spec).value
                metadata = self._metadata(fields if isinstance(fields, dict) else {}, spec)
                yield PodParts(metadata, spec, False, path, field)

    def _metadata(self, spec: Mapping[str, Value], path: Path) -> Path:
        """Return the path of the nearest annotations that apply to a pod of the object."""
        if isinstance(spec.get("annotations"), dict):
            return path
        for near in (path, path[:-1]):
            for field in ("metadata", "extraPodMetadata") if near else ():
                if isinstance(section(self._document, (*near, field)).value, dict):
                    return (*near, field)
        return ("metadata",) if self._to_pods else path


def _section(document: Document, parts: PodParts) -> PodSection:
    """Return one pod, put together from its parts in the object."""
    metadata = section(document, parts.metadata).value
    spec = section(document, parts.spec).value
    spec = spec if isinstance(spec, dict) else {}
    if parts.metadata == parts.spec:
        metadata = {"annotations": spec.get("annotations")}
    if parts.alone:
        container = section(document, parts.alone).value
        container = container if isinstance(container, dict) else {}
        called = next(part for part in reversed(parts.alone) if isinstance(part, str))
        amounts = container.get(parts.resources)
        if parts.custom:
            amounts = _devices(section(document, parts.custom).value)
        fields = {"name": called, **container, "resources": amounts}
        spec = {**spec, "containers": [fields], "initContainers": None}
    value: Value = {"metadata": metadata, "spec": spec}
    return PodSection(document.source, value, document.values, document.keys, document, parts)


def _is_spec(value: Mapping[str, Value]) -> bool:
    """Decide whether an object has a list of containers."""
    containers = value.get("containers")
    return (
        isinstance(containers, list)
        and bool(containers)
        and all(isinstance(one, dict) and _OF_CONTAINERS & one.keys() for one in containers)
    )


def _devices(resources: Value) -> Value:
    """Return a Dynamo service's amounts of devices in the form of a container's resources.

    See ai-dynamo/dynamo deploy/cloud/operator api/dynamo/common, ResourceItem.Custom.
    """
    amounts = resources if isinstance(resources, dict) else {}
    return {
        field: fields.get("custom")
        for field in ("limits", "requests")
        if isinstance(fields := amounts.get(field), dict)
    }


def _asks_devices(resources: Value) -> bool:
    """Decide whether limits or requests name a resource with a prefix, as of a device plugin."""
    amounts = resources if isinstance(resources, dict) else {}
    for field in ("limits", "requests"):
        names = amounts.get(field)
        if isinstance(names, dict) and any("/" in name for name in names):
            return True
    return False
