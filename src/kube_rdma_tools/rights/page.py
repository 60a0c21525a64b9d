"""`python -m kube_rdma_tools.rights.page`: the tables of rights in docs/least-privilege.md.

Rights come from the manifests (granted.py), the phrase for each from reasons.py.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from kube_rdma_tools.page_tables import BEGIN, markdown_row, put
from kube_rdma_tools.rights.granted import granted
from kube_rdma_tools.rights.reasons import REASONS

PAGE = Path(__file__).resolve().parents[3] / "docs" / "least-privilege.md"
_HEAD = ("of what", "verbs", "for what")
# Roles as the page names them: by their account, or by their name in a default installation.
_NAMES = {
    "ClusterRole agent": "agent, ClusterRole",
    "Role agent": "agent, Role",
    "ClusterRole controller": "controller and operator, ClusterRole",
    "Role controller": "controller and operator, Role",
    "ClusterRole retirement": "hooks of `helm uninstall`, ClusterRole",
    "Role retirement": "hooks of `helm uninstall`, Role",
    "Role retirement-drivers": "hooks of an operator's end, Role",
    "ClusterRole bandwidth-check": "`kube-rdma-bandwidth-check`",
    "ClusterRole view": "`kube-rdma-view`",
    "ClusterRole verify": "`kube-rdma-verify`",
    "ClusterRole aggregate-to-view": "`kube-rdma-aggregate-to-view`",
    "ClusterRole aggregate-to-edit": "`kube-rdma-aggregate-to-edit`",
    "Role doctor": "`kube-rdma-doctor`, Role",
}


def tables() -> str:
    """Return a table of rights for each role; raise KeyError for a right without a reason.

    A row has all resources with the same verbs and reason. What an earlier role has alike is
    named by that role.
    """
    order = list(_NAMES)
    rights = sorted(granted(), key=lambda right: (order.index(right.role), right))
    lines: list[str] = []
    seen: dict[tuple[str, str, str], str] = {}  # the first role with verbs of a resource
    for role, of_role in groupby(rights, key=lambda right: right.role):
        lines += ["", f"**{_NAMES[role]}**", "", markdown_row(_HEAD), "|---|---|---|"]
        alike: dict[tuple[str, str], list[str]] = {}  # resources by verbs and reason
        for resource, group in groupby(of_role, key=lambda right: right.resource):
            said = (", ".join(right.verb for right in group), REASONS[role][resource])
            first = seen.setdefault((resource, *said), role)
            row = said if first == role else (f"as {_NAMES[first]}", "the same")
            alike.setdefault(row, []).append(f"`{resource}`")
        lines += [markdown_row((", ".join(names), *row)) for row, names in alike.items()]
    return "\n".join([*lines, ""])


def page(text: str) -> str:
    """Return the page on rights with its tables written anew."""
    return put(text, BEGIN.format("rights"), tables())


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
