"""Reads and writes the objects of an installation at the API server, whatever their kind.

Objects are applied on the server in the name of Helm 4's field manager. So Helm can change their
fields once it takes the release over. Helm 3 looks at no owners of fields.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_client import wire
from kube_client.errors import Conflict, Lost
from kube_client.objects import Cluster
from kube_client.wire import ApiRequest
from kube_rdma.model.install import Json

_MANAGER = (("fieldManager", "helm"), ("force", "false"))
_DRY = ("dryRun", "All")
_REVIEWS = ("authorization.k8s.io", "v1", "selfsubjectaccessreviews")
_VERBS = ("get", "create", "patch")


async def version(cluster: Cluster) -> str:
    """Return the version of the API server, such as v1.36.3."""
    return str((await _read(cluster, ApiRequest("get", "", "", "version")))["gitVersion"])


async def found(cluster: Cluster, document: Json) -> Json | None:
    """Return the object that the cluster has under a document's name, None without one."""
    try:
        return await _read(cluster, request_for("get", document))
    except Conflict as missing:
        if missing.lost is not Lost.GONE:
            raise
        return None


async def apply(cluster: Cluster, document: Json, *, dry: bool = False) -> Json:
    """Apply a document on the server, and return the object; a `dry` run stores nothing.

    Raise Refused where another field manager owns a field and the document has another value.
    """
    request = replace(
        request_for("patch", document),
        query=(*_MANAGER, _DRY) if dry else _MANAGER,
        body=msgspec.json.encode(document),
        content_type=wire.APPLY,
    )
    return await _read(cluster, request)


async def require_rights(cluster: Cluster, document: Json) -> None:
    """Raise Refused unless the user may install an object such as this one."""
    asked = request_for("get", document)
    place = {"group": asked.group, "resource": asked.plural, "namespace": asked.namespace}
    if verbs := [verb for verb in _VERBS if not await _may(cluster, place | {"verb": verb})]:
        remedy = "Have an administrator install, or give you the right"
        raise Refused(f"you may not {', '.join(verbs)} it", remedy=remedy)


async def _may(cluster: Cluster, attributes: Mapping[str, str]) -> bool:
    review = {"kind": "SelfSubjectAccessReview", "apiVersion": "/".join(_REVIEWS[:2])}
    body = msgspec.json.encode({**review, "spec": {"resourceAttributes": attributes}})
    answer = await _read(cluster, ApiRequest("create", *_REVIEWS, body=body))
    return bool(answer["status"]["allowed"])


async def has_record(cluster: Cluster, release: str, namespace: str) -> bool:
    """Return whether Helm keeps a release of this name (Helm's storage/driver/secrets.go)."""
    query = (("labelSelector", f"owner=helm,name={release}"), ("limit", "1"))
    request = ApiRequest("list", "", "v1", "secrets", namespace, query=query)
    return bool(wire.page(await cluster.write(request)).items)


def request_for(verb: str, document: Json) -> ApiRequest:
    """Return the request about an object, whose resource is guessed from its kind."""
    group, _, served = document["apiVersion"].rpartition("/")
    metadata = document["metadata"]
    space = metadata.get("namespace", "")
    return ApiRequest(verb, group, served, _plural(document["kind"]), space, metadata["name"])


def resource_of(document: Json) -> str:
    """Return the resource of an object, as a definition is named: ippools.kube-rdma.io."""
    asked = request_for("get", document)
    return f"{asked.plural}.{asked.group}".rstrip(".")


def _plural(kind: str) -> str:
    """Return a kind's resource, as UnsafeGuessKindToResource of apimachinery guesses it."""
    if kind == "NetworkAttachmentDefinition":
        return "network-attachment-definitions"
    word = kind.lower()
    return f"{word[:-1]}ies" if word.endswith("y") else f"{word}{'es' if word[-1] == 's' else 's'}"


async def _read(cluster: Cluster, request: ApiRequest) -> Json:
    return wire.parse(await cluster.write(request), dict)
