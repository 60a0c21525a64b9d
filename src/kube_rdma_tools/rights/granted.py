"""All that the roles of an installation grant, whatever its values: read from their blueprints.

Each role has one blueprint (install/rules/objects), for manifests, the chart and the examples. So
no installation grants more than is read here.
"""

from __future__ import annotations

from collections.abc import Iterator

from kube_rdma.install.installation import blueprints
from kube_rdma.model.install import Hole, Joined, Json, Node, When
from kube_rdma_tools.rights.right import Right, resource_name, role_name

KINDS = ("ClusterRole", "Role")
# What stands here for values that are the whole name of a role.
_NAMES = {"platform.agentAccount": "agent", "platform.controller": "controller"}


def granted() -> frozenset[Right]:
    """Return every right that the product's roles grant."""
    return frozenset(
        right
        for listed in blueprints().values()
        for blueprint in listed
        if blueprint.body["kind"] in KINDS
        for right in _rights(blueprint.body)
    )


def _rights(role: Json) -> Iterator[Right]:
    kind, name = role["kind"], _text(role["metadata"]["name"])
    called = role_name(kind, name)
    if not called:
        raise LookupError(f"{kind} {name}: write the end of its name into rights/right.py")
    for rule in _rules(role["rules"]):
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    yield Right(called, resource_name(group, resource), verb)


def _rules(node: Node) -> Iterator[Json]:
    """Yield the rules in a role's blueprint, also rules that depend on values."""
    match node:
        case When():
            yield from _rules(node.then)
            yield from _rules(node.otherwise)
        case list():
            for entry in node:
                yield from _rules(entry)
        case dict():
            yield node


def _text(node: Node) -> str:
    """Return a name in a blueprint as text; a value that `_NAMES` lacks is left out."""
    match node:
        case Hole(path):
            return _NAMES.get(path, "")
        case Joined(parts):
            return "".join(map(_text, parts))
        case When():
            return _text(node.then)
        case _:
            return str(node)
