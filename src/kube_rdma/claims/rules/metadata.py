"""The files by which programs in a container learn of the devices of its claims (KEP-5304).

One file for each request of a claim, at the path that its consumers know from the pod's own
document; the content is DeviceMetadata of metadata.resource.k8s.io/v1alpha1, one JSON document a
line, the newest version first. Paths and fields are those of k8s.io/dynamic-resource-allocation
@v0.36.3 (doc.go, types.go and v1alpha1/types.go of its metadata API).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from kube_rdma.claims.rules.status import addresses
from kube_rdma.model.attach.attachment import Attached
from kube_rdma.model.claims.device import DRIVER
from kube_rdma.model.claims.prepared import ClaimShare, PreparedClaim
from kube_rdma.model.claims.users import PodClaims

FOLDER = "/var/run/kubernetes.io/dra-device-attributes"
API_VERSION = "metadata.resource.k8s.io/v1alpha1"

Attributes = Mapping[str, Mapping[str, object]]
"""By device what the ResourceSlice says of it, each value as {string: …}, {int: …}, {bool: …}."""


def own_pod(prepared: PreparedClaim) -> PodClaims:
    """The pod of a claim, as far as the paths of its files need it: the claim tells so much."""
    name = prepared.pod_claim or prepared.claim.name
    templates = (name,) if prepared.pod_claim else ()
    return PodClaims(
        prepared.claim.namespace, "", "", ((name, prepared.claim.name),), (), templates
    )


def request_of(path: str) -> str:
    """The request that a file is about."""
    return path.rsplit("/", 2)[1]


def files(
    prepared: PreparedClaim,
    pod: PodClaims,
    attributes: Attributes,
    interfaces: Sequence[Attached] = (),
) -> dict[str, str]:
    """By path in the container, the files of one claim of a pod."""
    by_request: dict[str, list[ClaimShare]] = {}
    for share in prepared.shares:
        by_request.setdefault(share.request.partition("/")[0], []).append(share)
    own_names = [name for name, claim in pod.claims if claim == prepared.claim.name]
    texts: dict[str, str] = {}
    for name in own_names:
        is_made = name in pod.templates
        folder = f"resourceclaimtemplates/{name}" if is_made else _direct(prepared)
        for request, shares in by_request.items():
            document = _document(prepared, name if is_made else None)
            document["requests"] = [
                {"name": full, "devices": [_device(s, attributes, interfaces) for s in mine]}
                for full, mine in _by_full_name(shares).items()
            ]
            path = f"{FOLDER}/{folder}/{request}/{DRIVER}-metadata.json"
            texts[path] = json.dumps(document, separators=(",", ":")) + "\n"
    return texts


def _direct(prepared: PreparedClaim) -> str:
    return f"resourceclaims/{prepared.claim.name}"


def _by_full_name(shares: Sequence[ClaimShare]) -> dict[str, list[ClaimShare]]:
    """By main/sub: of alternatives the one that the scheduler chose."""
    named: dict[str, list[ClaimShare]] = {}
    for share in shares:
        named.setdefault(share.request, []).append(share)
    return named


def _document(prepared: PreparedClaim, pod_claim: str | None) -> dict[str, object]:
    claim = prepared.claim
    document: dict[str, object] = {
        "apiVersion": API_VERSION,
        "kind": "DeviceMetadata",
        "metadata": {"name": claim.name, "namespace": claim.namespace, "uid": claim.uid},
    }
    return document | ({"podClaimName": pod_claim} if pod_claim else {})


def _device(
    share: ClaimShare, attributes: Attributes, interfaces: Sequence[Attached]
) -> dict[str, object]:
    device: dict[str, object] = {"driver": DRIVER, "pool": share.pool, "name": share.device}
    if published := attributes.get(share.device):
        device["attributes"] = dict(published)
    mine = [one for one in interfaces if one.card in share.cards and not share.admin]
    if mine:
        device["networkData"] = {
            "interfaceName": mine[0].interface,
            "ips": list(addresses(mine[0])),
            "hardwareAddress": mine[0].mac,
        }
    return device
