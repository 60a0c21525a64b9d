"""Writes the commands of a plan: kubectl on objects that were read, `kube-rdma render`.

migrate/rules/plan puts them in order. Where one plugin replaces the other, a wait for shares begins
with a wait for none. The API server learns of a node's resources seconds later, so the old number
proves nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from shlex import quote

from kube_rdma.model.migrate import Document, MigratingNode, PluginDaemonSet, VendorPolicy

MARK = "kube-rdma.io/agent"  # a node's label
HERE, BETWEEN = "on", "moving"  # the node is kube-rdma's; nobody's
_RATHER_LONG = "10m"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_NOT_MARKED: Document = {"key": MARK, "operator": "NotIn", "values": [BETWEEN, HERE]}
TURN = " \\\n    "


def cordon(nodes: Sequence[MigratingNode]) -> str:
    """Return the command by which nodes take no new pods."""
    return f"kubectl cordon {_names(nodes)}"


def uncordon(nodes: Sequence[MigratingNode]) -> tuple[str, ...]:
    """Return the commands by which nodes take pods again.

    Nodes that took none before are left out.
    """
    open_before = [node for node in nodes if not node.unschedulable]
    return (f"kubectl uncordon {_names(open_before)}",) if open_before else ()


def drain(node: MigratingNode) -> str:
    """Return the command that cordons a node and evicts its pods.

    It evicts none while one has no controller that would start it again.
    """
    return f"kubectl drain {quote(node.name)} --ignore-daemonsets --delete-emptydir-data"


def mark(nodes: Sequence[MigratingNode], value: str) -> str:
    """Return the command that labels nodes with `value`, or removes the label if that is ""."""
    word = f"{MARK}={value} --overwrite" if value else f"{MARK}-"
    return f"kubectl label node {_names(nodes)} {word}"


def gone(namespace: str, labels: str, node: MigratingNode | None = None) -> str:
    """Return the command that waits until labelled pods have ended, on one node or on all."""
    where = f" --field-selector=spec.nodeName={quote(node.name)}" if node else ""
    return (
        f"kubectl -n {quote(namespace)} wait pod -l {quote(labels)}{where}{TURN}"
        f"--for=delete --timeout={_RATHER_LONG}"
    )


def offered(
    nodes: Sequence[MigratingNode], resource: str, quantity: str, *, timeout: str = _RATHER_LONG
) -> str:
    """Return the command that waits until nodes offer this quantity of a resource."""
    which = " ".join(f"node/{quote(node.name)}" for node in nodes)
    value = f"{quote(allocatable(resource))}={quote(quantity)}"
    return f"kubectl wait {which} --timeout={timeout}{TURN}--for=jsonpath={value}"


def allocatable(resource: str) -> str:
    """Return the JSONPath of a resource's allocatable quantity in a Node object."""
    return f"{{.status.allocatable.{resource.replace('.', chr(92) + '.')}}}"


def all_offered(nodes: Sequence[MigratingNode], resources: Iterable[str]) -> tuple[str, ...]:
    """Return the commands that wait until nodes offer what they offered when the plan was made."""
    waits = []
    for resource in resources:
        by_number: dict[str, list[MigratingNode]] = {}
        for node in nodes:
            by_number.setdefault(node.offered.get(resource, "0"), []).append(node)
        waits += [offered(some, resource, n) for n, some in by_number.items() if n != "0"]
    return tuple(waits)


def none_offered(nodes: Sequence[MigratingNode], resources: Iterable[str]) -> tuple[str, ...]:
    """Return the commands that wait until nodes offer none of the resources that they offered."""
    return tuple(
        offered(some, resource, "0")
        for resource in resources
        if (some := [node for node in nodes if node.offered.get(resource, "0") != "0"])
    )


def registered(namespace: str, labels: str, node: MigratingNode) -> str:
    """Return the command that waits until kube-rdma's agent registers with a node's kubelet."""
    pods = (
        f"kubectl -n {quote(namespace)} get pod -o name -l {quote(labels)} "
        f"--field-selector=spec.nodeName={quote(node.name)}"
    )
    logs = f"kubectl -n {quote(namespace)} logs{TURN}$({pods})"
    return until(f"{logs} |{TURN}grep -q registered")


def until(condition: str) -> str:
    """Return a command that tries a shell condition once a second, for ten minutes at most."""
    return f"timeout 600 sh -c {quote(f'until {condition}; do sleep 1; done')}"


def held_off(plugin: PluginDaemonSet) -> str:
    """Return the command that keeps a DaemonSet's pods off nodes with the mark.

    It sets OnDelete, so no pod on other nodes is started anew. The node affinity stays; each of its
    terms, one of which has to hold, gets one more condition.
    """
    terms = [
        term | {"matchExpressions": [*_others(term), _NOT_MARKED]}
        for term in _terms(plugin) or [{}]
    ]
    affinity = {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": terms}}}
    strategy = {"type": "OnDelete", "rollingUpdate": None}
    return _patched(plugin, strategy, affinity)


def let_in_again(plugin: PluginDaemonSet) -> str:
    """Return the command that gives a DaemonSet back its update strategy and node affinity.

    The mark of an earlier plan is left out.
    """
    strategy = plugin.spec.get("updateStrategy") or {}
    if strategy.get("type") != "RollingUpdate":
        strategy = {
            "type": "OnDelete" if strategy and not _is_held_off(plugin) else "RollingUpdate"
        }
    return _patched(plugin, strategy, _affinity_before(plugin))


def rolled_out(plugin: PluginDaemonSet) -> str:
    """Return the command that waits until all pods of a DaemonSet have its present template."""
    what = f"-n {quote(plugin.namespace)} rollout status daemonset/{quote(plugin.name)}"
    return f"kubectl {what} --timeout={_RATHER_LONG}"


def ended(plugin: PluginDaemonSet) -> tuple[str, str]:
    """Return the commands that wait until a DaemonSet and its pods are gone."""
    where = f"kubectl -n {quote(plugin.namespace)} wait daemonset/{quote(plugin.name)}"
    whole = f"{where} --for=delete --timeout={_RATHER_LONG}"
    return whole, gone(plugin.namespace, plugin.labels)


def restarted(plugin: PluginDaemonSet) -> str:
    """Return the command that ends the pods of a DaemonSet, which then starts new ones."""
    return f"kubectl -n {quote(plugin.namespace)} delete pod -l {quote(plugin.labels)}"


def policy_says(policy: VendorPolicy, section: Document | None) -> str:
    """Return the command that sets a policy's section about the shared device plugin.

    With None for `section` the command removes the section.
    """
    space = f"-n {quote(policy.namespace)} " if policy.namespace else ""
    name = f"{space}patch {policy.kind.lower()} {quote(policy.name)}"
    return _patch(name, {"spec": {policy.field: section}})


def values_file(path: str, text: str) -> str:
    """Return the command that writes the values of an installation into a file."""
    return f"cat > {quote(path)} <<'VALUES'\n{text}VALUES"


def yaml(values: Mapping[str, Document | str | bool], depth: int = 0) -> str:
    """Return values as YAML for people; a text of several lines is a block."""
    lines, space = "", "  " * depth
    for key, value in values.items():
        name = key if key.isalnum() else json.dumps(key)
        if isinstance(value, Mapping):
            lines += f"{space}{name}:\n{yaml(value, depth + 1)}"
        elif isinstance(value, str) and "\n" in value and _printable(value):
            whole = value.removesuffix("\n").split("\n")
            block = "".join(f"{space}  {line}\n" if line else "\n" for line in whole)
            ends = "" if value.endswith("\n") else "-"
            lines += f"{space}{name}: |2{ends}\n{block}"
        else:
            lines += f"{space}{name}: {_quoted(value)}\n"
    return lines


def _quoted(value: object) -> str:
    """Return a JSON text that is also valid YAML."""
    if not isinstance(value, str):
        return json.dumps(value)
    wide = (f"\\U{ord(c):08x}" if ord(c) > 0xFFFF else json.dumps(c)[1:-1] for c in value)
    return f'"{"".join(wide)}"'


def _printable(text: str) -> bool:
    """Return whether a text can be a YAML block in a here-document of a shell, unchanged."""
    lines = text.removesuffix("\n").split("\n")
    plain = all(line.isprintable() and line != "VALUES" for line in lines)
    return plain and bool(lines[-1].strip())


def _names(nodes: Iterable[MigratingNode]) -> str:
    return " ".join(quote(node.name) for node in nodes)


def _patched(plugin: PluginDaemonSet, strategy: Document, affinity: Document | None) -> str:
    what = f"-n {quote(plugin.namespace)} patch daemonset {quote(plugin.name)}"
    pods = {"spec": {"affinity": affinity}}
    return _patch(what, {"spec": {"updateStrategy": strategy, "template": pods}})


def _patch(what: str, document: Document) -> str:
    text = json.dumps(document, separators=(",", ":"))
    return f"kubectl {what} --type=merge -p{TURN}{quote(text)}"


def _terms(plugin: PluginDaemonSet) -> list[dict[str, object]]:
    affinity = plugin.pod.get("affinity") or {}
    required = (affinity.get("nodeAffinity") or {}).get(_REQUIRED) or {}
    return list(required.get("nodeSelectorTerms") or ())


def _others(term: Mapping[str, object]) -> list[object]:
    """Return the conditions of a node selector term without that of an earlier plan."""
    return [one for one in _conditions(term) if one != _NOT_MARKED]


def _conditions(term: Mapping[str, object]) -> list[object]:
    written = term.get("matchExpressions") or []
    assert isinstance(written, list)
    return written


def _is_held_off(plugin: PluginDaemonSet) -> bool:
    return any(_NOT_MARKED in _conditions(term) for term in _terms(plugin))


def _affinity_before(plugin: PluginDaemonSet) -> Document | None:
    """Return a merge patch that restores the affinity of before the plan; None removes it."""
    affinity = plugin.pod.get("affinity") or {}
    if not _is_held_off(plugin):
        if not affinity:
            return None
        node = affinity.get("nodeAffinity")
        return {"nodeAffinity": {_REQUIRED: node.get(_REQUIRED)} if node else None}
    terms = []
    for term in _terms(plugin):
        rest = {key: value for key, value in term.items() if key != "matchExpressions"}
        if others := _others(term):
            rest["matchExpressions"] = others
        if rest:
            terms.append(rest)
    if terms:
        return {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": terms}}}
    if any(key != _REQUIRED for key in affinity["nodeAffinity"]):
        return {"nodeAffinity": {_REQUIRED: None}}
    return {"nodeAffinity": None} if any(key != "nodeAffinity" for key in affinity) else None
