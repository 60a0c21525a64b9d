"""Storage that manifests describe: which driver the volume of a claim has.

Beside admission/manifest_check, which asks for the claims when all files are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kube_base.frozen import Frozen
from kube_rdma.admission.documents.manifests import Manifest
from kube_rdma.admission.documents.pod_manifest import DEFAULT_NAMESPACE
from kube_rdma.model.admission.facts import ClaimFacts


class _WrittenVolume(Frozen):
    """A PersistentVolume: its driver and the claim that it is for."""

    name: str
    driver: str
    claim: tuple[str, str]


class _WrittenClaim(Frozen):
    """A PersistentVolumeClaim as it is written."""

    namespace: str
    name: str
    storage_class: str
    volume: str


class WrittenStorage:
    """Claims, volumes and classes: only what says whose driver a volume has."""

    def __init__(self) -> None:
        self._claims: list[_WrittenClaim] = []
        self._volumes: list[_WrittenVolume] = []
        self._classes: dict[str, str] = {}  # storage classes with their drivers

    def add(self, manifest: Manifest) -> None:
        """One object of these kinds."""
        value = fields_of(manifest.document.value)
        spec = fields_of(value.get("spec"))
        if manifest.kind == "StorageClass":
            self._classes[manifest.name] = text_of(value.get("provisioner"))
        elif manifest.kind == "PersistentVolume":
            to = fields_of(spec.get("claimRef"))
            claim = (text_of(to.get("namespace")), text_of(to.get("name")))
            driver = text_of(fields_of(spec.get("csi") or spec.get("flexVolume")).get("driver"))
            self._volumes.append(_WrittenVolume(manifest.name, driver, claim))
        else:
            space = manifest.namespace or DEFAULT_NAMESPACE
            name = text_of(spec.get("storageClassName"))
            volume = text_of(spec.get("volumeName"))
            self._claims.append(_WrittenClaim(space, manifest.name, name, volume))

    def bound(self) -> Iterator[ClaimFacts]:
        """Each claim with the driver of its volume, or of its class."""
        by_name = {volume.name: volume for volume in self._volumes}
        by_claim = {volume.claim: volume for volume in self._volumes}
        for claim in self._claims:
            volume = by_name.get(claim.volume) or by_claim.get((claim.namespace, claim.name))
            driver = volume.driver if volume else self._classes.get(claim.storage_class, "")
            yield ClaimFacts(claim.namespace, claim.name, driver, claim.storage_class)


def fields_of(value: object) -> Mapping[str, object]:
    """An object's fields; none of what is no object."""
    return value if isinstance(value, dict) else {}


def text_of(value: object) -> str:
    """A text; an empty one in place of what is none."""
    return value if isinstance(value, str) else ""
