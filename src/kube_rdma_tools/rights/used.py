"""Rights in an API server's audit log: requests that a role allowed, and others that none did.

The API server writes why it allowed a request: ``RBAC: allowed by ClusterRoleBinding "x" of
ClusterRole "y" to …`` (k8s.io/kubernetes plugin/pkg/auth/authorizer/rbac/rbac.go). So a use counts
for the role, whatever account has it. Roles of programs count where kube-rdma itself asked, not a
test's kubectl.

    audit*.log of a lab ─► uses ─► a file of the run ─┬─► Evidence ─► judgement
                               files of other runs ───┘
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from kube_base.frozen import Frozen, asdict
from kube_rdma_tools.rights.right import Right, resource_name, role_name

_REASON = re.compile(r'of (ClusterRole|Role) "([^"]+)"')
_ACCOUNT = re.compile(r"system:serviceaccount:[^:]+:(?:.*-)?(agent|controller|operator|retirement)")
_AGENT = "kube-rdma/"
_FOR_PEOPLE = ("view", "verify", "top", "doctor", "aggregate-to-view", "aggregate-to-edit")
# Roles of Kubernetes that take in ours (rights.yaml), for kinds that are ours.
_AGGREGATED = ("view", "edit", "admin")
_OWN_GROUPS = ("kube-rdma.io", "k8s.cni.cncf.io")
_READ = ("get", "list", "watch")
# The API server allowed it by rights, and a policy refused it.
_REFUSED_LATER = (403, 422)
CREATED = 201


class RightUse(Frozen, order=True):
    """Requests of one kind by an account, and the role that allowed them, "" for none."""

    account: str  # its last word: agent, controller; "" for requests of other programs
    role: str
    verb: str
    resource: str
    namespaced: bool
    named: bool  # one object, by its name
    code: int


class Evidence(Frozen):
    """The rights that the lab's runs used, and the requests that were refused, by account."""

    used: frozenset[Right]
    refused: frozenset[Right]


def uses(lines: Iterable[str]) -> Iterator[RightUse]:
    """Yield the requests in an audit log's lines that use or lack a right of kube-rdma.

    Incomplete lines are skipped.
    """
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if (use := _use(event)) is not None:
            yield use


def evidence(listed: Iterable[RightUse]) -> Evidence:
    """Collect used and refused rights; a patch that created its object also used `create`."""
    used, refused = set(), set()
    for use in listed:
        if not use.role:
            refused.add(Right(use.account, use.resource, use.verb))
        elif use.code not in _REFUSED_LATER:
            used.add(Right(use.role, use.resource, use.verb))
            if (use.verb, use.code) == ("patch", CREATED):
                used.add(Right(use.role, use.resource, "create"))
    return Evidence(frozenset(used), frozenset(refused))


def gather(logs: Path, target: Path) -> int:
    """Write the right uses in a lab's audit logs to a file of the run; return their number."""
    listed = set()
    for log in sorted(logs.glob("audit*.log")):
        with log.open(encoding="utf-8", errors="replace") as lines:
            listed |= set(uses(lines))
    target.parent.mkdir(parents=True, exist_ok=True)
    texts = [json.dumps(asdict(use)) for use in sorted(listed)]
    target.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return len(texts)


def read(folder: Path) -> Iterator[RightUse]:
    """Yield the right uses in the files of all runs in a folder."""
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            yield RightUse(**json.loads(line))


def _use(event: Mapping[str, Any]) -> RightUse | None:
    """Return the request in an audit event as RightUse, None for one that does not count.

    It counts if a role for people allowed it. A request of kube-rdma's own programs counts if one
    of their roles allowed it, or if it was refused.
    """
    about, notes = event.get("objectRef"), event.get("annotations") or {}
    if about is None:
        return None
    group, resource = about.get("apiGroup", ""), about["resource"]
    verb, user = event["verb"], event["user"].get("username", "")  # none without a valid token
    match = _ACCOUNT.fullmatch(user)
    program = match is not None and str(event.get("userAgent", "")).startswith(_AGENT)
    account = match[1] if match and program else ""
    role = ""
    if notes.get("authorization.k8s.io/decision") == "allow":
        role = _role(notes.get("authorization.k8s.io/reason", ""), group, verb)
        if not role or (role.split()[1] not in _FOR_PEOPLE and not program):
            return None
    elif not account:
        return None
    name = resource_name(group, resource, about.get("subresource", ""))
    code = (event.get("responseStatus") or {}).get("code", 0)
    return RightUse(account, role, verb, name, "namespace" in about, "name" in about, code)


def _role(reason: str, group: str, verb: str) -> str:
    """Return the short name of the role in an audit event's reason; "" for another project's."""
    match = _REASON.search(reason)
    if match is None:
        return ""
    kind, name = match.groups()
    if kind == "ClusterRole" and name in _AGGREGATED:
        if group not in _OWN_GROUPS:
            return ""
        return f"{kind} aggregate-to-{'view' if verb in _READ else 'edit'}"
    return role_name(kind, name)
