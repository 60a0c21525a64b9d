"""Following a page on a lab: to its end, or up to where it takes away what it made.

For tests/lab: test_documents.py follows whole pages; a file that proves more of an example stops
before the page's last blocks, which run behind its tests.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from math import ceil
from typing import Any

from kube_rdma.model.verify import PROBE_SECONDS
from kube_rdma.pools.rules.labels import writes
from kube_rdma_lab import cluster
from kube_rdma_lab.ghost.install import NAMESPACE
from kube_rdma_lab.lab import Lab

from .pages import Block, blocks, pages
from .rules import Runs, runs
from .shell import Failed, Shell

ALL = slice(None)
WAIT = re.compile(r"(?<=--timeout=)(\d+)(?=[smh]\b)")


def on_lab(page: str, kind: Runs = Runs.LAB) -> tuple[Block, ...]:
    """Return the blocks of a page that a lab of this kind runs."""
    return tuple(block for block in blocks(page, pages()[page]) if runs(block) is kind)


@contextmanager
def followed(
    lab: Lab,
    page: str,
    kind: Runs = Runs.LAB,
    *,
    part: slice = ALL,
    later: int = 0,
    programs: tuple[str, ...] = (),
) -> Iterator[Callable[[], None]]:
    """Follow a page, or a `part` of its blocks, up to its last block, and through that at the end.

    Then nothing of it is left. Who is told that the page is followed may ask for the `later` blocks
    before the last one, each call for the next one; what nobody asks for does not run. `programs`
    are folders of more programs.
    """
    listed = on_lab(page, kind)[part]
    first, asked, last = (
        listed[: -1 - later],
        iter(listed[len(listed) - 1 - later : -1]),
        listed[-1:],
    )
    before, leaving = _standing(lab), _leaving(lab)
    # Which lab is meant; and for commands on other clusters, kubectl and where the cluster is.
    person = {
        "KUBE_RDMA_LAB": lab.state.name,
        "KUBECONFIG": str(lab.kubeconfig),
        "KUBE_RDMA_PROBE_SECONDS": str(ceil(PROBE_SECONDS * max(lab.state.pace, 1.0))),
    }
    with Shell(person, lab.state.binaries, *programs) as shell:
        try:
            _walk(lab, shell, first)
            yield lambda: _walk(lab, shell, (next(asked),))
        except BaseException:
            with suppress(Failed):  # what failed first is what is told
                _walk(lab, shell, last)
            raise
        _walk(lab, shell, last)
    now = _standing(lab)
    left, missing = now - before, before - now - leaving
    assert not left | missing, f"{page} leaves {left} and takes away {missing}"


def _walk(lab: Lab, shell: Shell, listed: Iterable[Block]) -> None:
    """Run blocks; before a failure stand the pods and the last events.

    The failure is last: where only the end of a run's output is kept, it is what tells the cause.
    """
    try:
        shell.walk(
            replace(command, text=patient(command.text, lab.state.pace))
            for block in listed
            for command in block.commands
        )
    except Failed as failed:
        pods = cluster.kubectl(lab, "get", "pods", "-A", "-o", "wide")
        events = cluster.kubectl(lab, "get", "events", "-A", "--sort-by=.lastTimestamp")
        raise Failed("\n".join([pods, *events.splitlines()[-20:], str(failed)])) from None


def patient(text: str, pace: float) -> str:
    """A page's command, whose own wait is that of a reader's cluster, on a lab of this pace."""
    return WAIT.sub(lambda wait: str(ceil(int(wait[0]) * max(pace, 1.0))), text)


def _standing(lab: Lab) -> set[tuple[str, ...]]:
    """Return what pages make and others would stumble over; not the lab's own things."""
    made = {_name(item) for item in _objects(lab)}
    labels = {
        (node["metadata"]["name"], *label)
        for node in cluster.get(lab, "nodes")["items"]
        for label in node["metadata"]["labels"].items()
        # Those that an agent writes, it leaves (docs/config.md).
        if label[0] == cluster.CARDS_LABEL or not writes(label[0])
    }
    return {thing for thing in made if thing[1] != NAMESPACE} | labels


def _leaving(lab: Lab) -> set[tuple[str, ...]]:
    """Return what was already being deleted, such as pods of tests that ran before."""
    return {_name(item) for item in _objects(lab) if "deletionTimestamp" in item["metadata"]}


def _objects(lab: Lab) -> list[dict[str, Any]]:
    """List the kinds of objects that pages make."""
    kinds = "namespaces,daemonsets,deployments,jobs,pods"
    return cluster.get(lab, kinds, "-A")["items"]


def _name(item: dict[str, Any]) -> tuple[str, ...]:
    """Return an object's kind, namespace and name."""
    return item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]
