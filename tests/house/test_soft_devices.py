"""What the product does for soft devices (rxe, siw) alone is listed here, with its reason.

The labs have no other devices: a path that they alone take looks tested, and is not the one of real
cards. Whatever gives, hides or promises something by a device's being soft has to stand here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

from .tree import is_generated, texts

KERNEL = "src/kube_rdma/adapters/kernel"
ATTACH = "src/kube_rdma/attach/rules"
_ASKED = {"is_soft", "soft", "soft_links", "of_a_pod"}  # names that say it
_KINDS = {"rxe", "siw"}
# File and function, and why it has to know. A real card takes the other branch of each.
USES = {
    # What it is: read from the kernel.
    f"{KERNEL}/link_view.py _merge_device": "netlink knows its interface",
    f"{KERNEL}/sysfs/devices.py _device": "it sits on no PCI function",
    f"{KERNEL}/sysfs/netdev.py DeviceSite": "the field",
    "src/kube_rdma/pools/rules/selection.py of_a_pod": "made in a pod, it is no card of the node",
    "src/kube_rdma/pools/rules/selection.py cards": "likewise",
    # Networks: it stands on one interface and goes with it, so each pod gets one of its own.
    "src/kube_rdma/model/attach/attachment.py HostNetwork": "the field: the kind that the node has",
    "src/kube_rdma/model/attach/attachment.py PodNic": "the field: the kind to make for a pod",
    "src/kube_rdma/model/attach/steps.py TakeLink": "the field: to be made again on return",
    "src/kube_rdma/attach/rules/host_links.py host_network": "the kind to make",
    f"{ATTACH}/placement.py _nic": "iWARP has no GIDs of addresses; a real device's type says so",
    f"{ATTACH}/placement.py _rdma": "of real devices the pod gets the card's own",
    f"{ATTACH}/placement.py soft_links": "a card's, by name",
    f"{ATTACH}/plan.py _taken": "those to make again when the interface comes back",
    f"{ATTACH}/plan.py _talk": "of real devices nothing is made",
    f"{ATTACH}/undo.py _given_back": "made again when the interface comes back",
    f"{ATTACH}/delegated.py device_names": "a card's soft device is not the pod's own",
    f"{ATTACH}/vf.py refuse_late_mac": "its GUID is of its MAC: nobody has to set it",
    "src/kube_rdma/explain/rules/node.py basis": "as host_network, from a report",
    "src/kube_rdma/explain/rules/node.py _device": "a report has no type: the name says iWARP",
    "src/kube_rdma/preflight/container.py _client": "its figures are times of the whole program",
    # Of real cards more is demanded or told.
    "src/kube_rdma/claims/rules/shape.py _kind": "the word for it in a slice, as function is one",
    "src/kube_rdma/pools/rules/functions.py _Node._use": "its function is in use",
    "src/kube_rdma/pools/rules/node_health.py _Members.__init__": "not the function's own",
    "src/kube_rdma/pools/rules/allocation.py device_infos": "its name is known in the pod alone",
}


def asking(tree: ast.AST, name: str = "") -> Iterator[str]:
    """The function or class around each word that asks whether a device is soft, or of which kind.

    Texts for people do not ask.
    """
    for node in ast.iter_child_nodes(tree):
        inner = name
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{name}.{node.name}" if name else node.name
        if word(node) in _ASKED or (isinstance(node, ast.Constant) and node.value in _KINDS):
            yield inner
        yield from asking(node, inner)


def word(node: ast.AST) -> str:
    """The name or attribute that this is."""
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""


@cache
def uses() -> frozenset[str]:
    """All of the product."""
    return frozenset(
        f"{name} {where}".strip()
        for name, text in texts("src/kube_rdma")
        if name.endswith(".py") and not is_generated(name)
        if not name.startswith("src/kube_rdma/doctor/")  # it judges, and gives and hides nothing
        if any(word in text for word in _ASKED | _KINDS)
        for where in asking(ast.parse(text))
    )


def test_no_path_is_for_soft_devices_alone_unless_it_says_why() -> None:
    """A new one stands in USES with its reason, or asks for what it needs of any device."""
    assert sorted(uses() - USES.keys()) == [], "write each into USES, with its reason"


def test_each_reason_is_for_something() -> None:
    """What no longer asks leaves the list."""
    assert sorted(USES.keys() - uses()) == []


def test_planted_questions_are_found() -> None:
    """In functions, in methods, and at the top of a file."""
    for planted, where in {
        "def f(d): return d.is_soft": "f",
        "class C:\n    def m(self): return any(soft_links(c) for c in self.cards)": "C.m",
        "def f(c): return lambda k: k.kind == 'rxe'": "f",
        "X = [d for d in ALL if not d.is_soft]": "",
        "async def f(node): return node.soft": "f",
    }.items():
        assert set(asking(ast.parse(planted))) == {where}, planted
    assert not list(asking(ast.parse("def f(d): 'no rxe in words'; return d.name")))
