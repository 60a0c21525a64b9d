"""What the API server asks an admission webhook, and what it is answered (admission.k8s.io/v1).

Between the wire of a webhook and programs/admission/review, which judges. Only the API server
writes such requests, so what has not their form is refused as a whole, without places.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence

from kube_base.errors import Refused
from kube_base.foreign_json import Undecodable, decoded
from kube_base.frozen import Frozen
from kube_rdma.model.install.blueprint import Json

MOST_BYTES = 3 << 20  # the API server takes no request above; etcd no object above half of it
_MOST_WARNINGS = 10
_API = "admission.k8s.io/v1"
_DEVICES = "resource.k8s.io"


class ReviewRequest(Frozen):
    """A request about an object that is to be made, or is written anew with another spec.

    `pod` is None where it is about anything but a new pod. `devices` is a ResourceClaim, a template
    of one or a DeviceClass, of the kind `devices_kind`.
    """

    uid: str
    namespace: str = ""
    pod: Json | None = None
    devices: Json | None = None
    devices_kind: str = ""


def decode(body: bytes) -> ReviewRequest:
    """What is asked; raise Refused for what is no review."""
    if len(body) > MOST_BYTES:
        raise _no_review(f"the request has {len(body)} bytes")
    try:
        review = decoded(body)
    except Undecodable:
        raise _no_review("the request is not JSON") from None
    request = review.get("request") if isinstance(review, dict) else None
    uid = request.get("uid") if isinstance(request, dict) else None
    if not isinstance(request, dict) or not isinstance(uid, str) or not uid:
        raise _no_review("the request has no uid")
    namespace = request.get("namespace")
    kind, devices = _devices(request)
    space = namespace if isinstance(namespace, str) else ""
    return ReviewRequest(uid, space, _pod(request), devices, kind)


def encode(
    uid: str, *, refusal: str = "", warnings: Sequence[str] = (), patch: Sequence[Json] = ()
) -> bytes:
    """The answer: `refusal` is why the object is not admitted, `warnings` reach its author."""
    response: Json = {"uid": uid, "allowed": not refusal}
    if refusal:
        response["status"] = {"code": 422, "reason": "Invalid", "message": refusal}
    if warnings:
        rest = len(warnings) - _MOST_WARNINGS
        more = [f"kube-rdma: and {rest} more warnings"] if rest > 0 else []
        response["warnings"] = [*warnings[:_MOST_WARNINGS], *more]
    if patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(json.dumps(list(patch)).encode()).decode()
    return json.dumps(
        {"apiVersion": _API, "kind": "AdmissionReview", "response": response}
    ).encode()


def _pod(request: Json) -> Json | None:
    """The pod of a request to make one."""
    kind, value = request.get("kind"), request.get("object")
    is_pod = isinstance(kind, dict) and (kind.get("group"), kind.get("kind")) == ("", "Pod")
    made = is_pod and request.get("operation") == "CREATE" and not request.get("subResource")
    return value if made and isinstance(value, dict) else None


def _devices(request: Json) -> tuple[str, Json | None]:
    """What configures devices, by kind; nothing where its spec stays as it is.

    A claim that is stored changes its metadata and status all its life, whatever it says.
    """
    kind, value, old = (request.get(key) for key in ("kind", "object", "oldObject"))
    named = kind.get("kind") if isinstance(kind, dict) and kind.get("group") == _DEVICES else None
    if not isinstance(named, str) or not isinstance(value, dict) or request.get("subResource"):
        return "", None
    stays = isinstance(old, dict) and old.get("spec") == value.get("spec")
    asked = request.get("operation") in ("CREATE", "UPDATE") and not stays
    return (named, value) if asked else ("", None)


def _no_review(problem: str) -> Refused:
    remedy = "Send an AdmissionReview of admission.k8s.io/v1, as the API server does"
    return Refused(problem, remedy=remedy)
