"""Sorts the API server's refusals by who has to act.

    Unavailable     no answer, 408, 429, 5xx, 403 while a CRD is deleted: the same again can help
    ├── Expired     410: list again, which a watch does by itself
    └── Conflict    the object is not as the caller believed: read it again, then decide again
    Refused         403 (RBAC, admission), 401, 422, other 4xx, 500 of fields that are not defined
    └── NotInstalled 404 of a whole resource

A Conflict is Unavailable to whoever does not look closer, since trying again is right for both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from shlex import quote

import msgspec

from kube_base.errors import KubeError, Refused, Unavailable
from kube_base.foreign_json import Undecodable, decoded
from kube_base.frozen import Frozen
from kube_client.wire import Answer, ApiRequest


class WebsocketFault(Exception):
    """The error for a peer that breaks the WebSocket protocol; its text is a part of a sentence."""


class Lost(StrEnum):
    """The reason of a Conflict: how an object differs from what a request requires."""

    CHANGED = "changed"  # somebody wrote it since it was read, or it is another object by now
    EXISTS = "exists"  # there is one of this name already
    GONE = "gone"  # there is none of this name


# The end of the 409 of Kubernetes 1.30 for a replace of an object that is gone: it compares the uid
# with an empty one. 1.36 answers 404.
_UID_OF_NONE = "UID in object meta:"
# In a 403 while the objects of a definition are being deleted; afterwards the definition is gone,
# or was made anew (apiextensions-apiserver, pkg/apiserver/customresource_handler.go; seen of 1.36).
_TERMINATING = "while custom resource definition is terminating"
# In the 500 for a server-side apply with a field that the definition lacks (structured-merge-diff,
# typed; seen of 1.36).
_UNDECLARED = "field not declared in schema"
_ACCOUNT = "system:serviceaccount:"
_USER = re.compile(r'User "([^"]+)" cannot ')  # of RBAC's refusals
_INSTALL = "Install the custom resource definitions that belong to this version of {}"


class Conflict(Unavailable):
    """The error for an object that is not in the state that a request requires.

    A write that raises it has changed nothing. A read raises it where there is no such object.
    """

    def __init__(self, message: str, lost: Lost) -> None:
        self.lost = lost
        super().__init__(message)


class Expired(Unavailable):
    """The error for a watch or page whose version the server no longer has: list again."""


class NotInstalled(Refused):
    """The error for a kind that the API server does not have, as when its CRD is not installed."""


class _Cause(msgspec.Struct, rename="camel"):
    reason: str = ""
    message: str = ""
    field: str = ""


class _Details(msgspec.Struct, rename="camel"):
    name: str = ""
    kind: str = ""
    causes: list[_Cause] | None = None


class Status(msgspec.Struct, rename="camel"):
    """Kubernetes' object Status (meta/v1): the body of refusals, and the end of a pod's command."""

    status: str = ""
    message: str = ""
    reason: str = ""
    details: _Details | None = None
    code: int = 0


class _Refusal(Frozen):
    """A refused request: the request, the program that sent it, and the server's answer."""

    request: ApiRequest
    program: str
    status: Status
    message: str


def failure(request: ApiRequest, answer: Answer, program: str) -> KubeError:
    """Return the error for an unsuccessful answer; its text may name `program`, which asked."""
    status = _status(answer)
    message = (status.message.splitlines() or [""])[0].rstrip(". ") or f"HTTP {answer.status}"
    if answer.status in _ERRORS:
        error = _ERRORS[answer.status](_Refusal(request, program, status, message))
    elif 400 <= answer.status < 500:
        error = _invalid(_Refusal(request, program, status, message))
    elif lines := [line.strip() for line in status.message.splitlines() if _UNDECLARED in line]:
        error = Refused(
            f"the definition of {request.plural} at the API server is older than {program}, which "
            f"can therefore not {request}: {lines[0]}",
            remedy=_INSTALL.format(program),
        )
    else:
        error = Unavailable(f"The API server failed ({answer.status}) to {request}: {message}.")
    return error


def _status(answer: Answer) -> Status:
    try:
        return decoded(answer.body, Status) if answer.json else Status()
    except Undecodable:
        return Status()


def _unknown(refusal: _Refusal) -> Refused:
    return Refused(
        f"the API server does not accept {refusal.program}'s credentials",
        remedy="Check the kubeconfig, or the service account's token",
    )


def _expired(refusal: _Refusal) -> Expired:
    return Expired(f"The API server has forgotten that version: {refusal.message}.")


def _busy(refusal: _Refusal) -> Unavailable:
    return Unavailable(f"The API server is busy: {refusal.message}.")


def _forbidden(refusal: _Refusal) -> KubeError:
    request, message = refusal.request, refusal.message
    if _TERMINATING in message:
        return Unavailable(f"The API server cannot {request} now: {message}.")
    if " cannot " not in message:  # an admission plugin speaks, not RBAC
        return Refused(
            f"the API server's admission forbids to {request}: {message}",
            remedy="Do what it asks for, or change its policy",
        )
    verbs = '"list", "watch"' if request.verb in {"list", "watch"} else f'"{request.verb}"'
    rule = f'apiGroups: ["{request.group}"], resources: ["{request.resource}"], verbs: [{verbs}]'
    return Refused(
        f"the API server forbids to {request}: {message}",
        remedy=f"Add the rule {{{rule}}} to {_role(refusal)}",
    )


def _role(refusal: _Refusal) -> str:
    """Return whose role lacks a right, in words: a user's or the program's."""
    user = _USER.search(refusal.message)
    if user and not user[1].startswith(_ACCOUNT):
        return f"a role of {user[1]}"
    role, name = f"{refusal.program}'s role", user[1].rpartition(":")[2] if user else ""
    if not re.fullmatch("[a-z0-9.-]+", name):
        return role
    return f"{role}, or bind it: kubectl get clusterrolebinding -o wide | grep {quote(name)}"


def _not_found(refusal: _Refusal) -> KubeError:
    request, message, details = refusal.request, refusal.message, refusal.status.details
    if details and details.kind == "namespaces" and request.plural != "namespaces":
        return Refused(f"cannot {request}: {message}", remedy="Create the namespace")
    if details and details.name:
        return Conflict(f"Cannot {request}: {message}.", Lost.GONE)
    resource = f"{request.plural}.{request.group}" if request.group else request.plural
    return NotInstalled(
        f"the API server does not know {resource} in version {request.version}",
        remedy=_INSTALL.format(refusal.program),
    )


def _conflict(refusal: _Refusal) -> KubeError:
    request, status, message = refusal.request, refusal.status, refusal.message
    causes = _causes(status)
    owned = [cause for cause in causes if cause.reason == "FieldManagerConflict"]
    if owned:
        fields = ", ".join(f"{cause.field} ({cause.message})" for cause in owned)
        return Refused(
            f"others own fields that {refusal.program} wants to {request}: {fields}",
            remedy="Let only one of the two write them, or force it",
        )
    lost = Lost.CHANGED
    if status.reason == "AlreadyExists":
        lost = Lost.EXISTS
    elif message.endswith(_UID_OF_NONE):
        lost = Lost.GONE
    return Conflict(f"Cannot {request}: {message}.", lost)


def _invalid(refusal: _Refusal) -> KubeError:
    """Return the error for a 422, and for each 4xx that is not in _ERRORS.

    It is a Conflict where the uid differs, else Refused.
    """
    if any(cause.field == "metadata.uid" for cause in _causes(refusal.status)):
        return Conflict(f"Cannot {refusal.request}: it is another object by now.", Lost.CHANGED)
    return Refused(
        f"the API server refuses to {refusal.request}: {refusal.message}",
        remedy="Change the object so that its schema and its webhooks accept it",
    )


def _causes(status: Status) -> list[_Cause]:
    return (status.details.causes if status.details else None) or []


_ERRORS: Mapping[int, Callable[[_Refusal], KubeError]] = {
    401: _unknown,
    403: _forbidden,
    404: _not_found,
    408: _busy,
    409: _conflict,
    410: _expired,
    422: _invalid,
    429: _busy,
}
