"""All that happened to the nodes of a cluster and to the pods of a namespace, in its order.

Two watches write it down as the API server sends it, from one version on that was listed before: so
no state is left out, as it would be between two looks. Versions are etcd's revisions, one count for
all kinds; by them both watches have one order. `turns` says of each moment which nodes are being
changed (docs/drivers.md).
"""

import json
import subprocess
from contextlib import ExitStack, contextmanager
from itertools import groupby
from typing import NamedTuple

from kube_rdma_lab import cluster, signs, waiting

DRIVER = ("kube-rdma.io/component", "state-OFED")  # the label of drivers' pods
PLACED = "kube-rdma.io/driver"  # the label by which a node has a driver


class Happened(NamedTuple):
    """An object of a kind ("nodes", "pods") as it was after somebody wrote it, or when it went."""

    kind: str
    document: dict
    gone: bool = False

    @property
    def version(self):
        return int(self.document["metadata"]["resourceVersion"])

    @property
    def uid(self):
        return self.document["metadata"]["uid"]


@contextmanager
def recording(lab, namespace, folder):
    """Write down in a folder what happens meanwhile; yields a function that gives it so far.

    It gives what was there at first, and what happened since.
    """
    paths = {"nodes": "/api/v1/nodes", "pods": f"/api/v1/namespaces/{namespace}/pods"}
    version = _listed(lab, paths["nodes"])["metadata"]["resourceVersion"]
    exact = f"resourceVersion={version}"
    first = [
        Happened(kind, item)
        for kind, path in paths.items()
        for item in _listed(lab, f"{path}?{exact}&resourceVersionMatch=Exact")["items"]
    ]
    with ExitStack() as stack:
        watches = [
            stack.enter_context(_watch(lab, kind, f"{path}?watch=1&{exact}", folder / kind))
            for kind, path in paths.items()
        ]

        def since():
            return sorted((one for read in watches for one in read()), key=lambda one: one.version)

        def is_current():
            """Whether all that is there now is written down."""
            now = {
                (kind, item["metadata"]["resourceVersion"])
                for kind, path in paths.items()
                for item in _listed(lab, path)["items"]
            }
            return now == {(one.kind, str(one.version)) for one in _state(first + since()).values()}

        def record():
            waiting.until(lab, "the last events of the watches", is_current)
            return first, since()

        yield record


@contextmanager
def _watch(lab, kind, path, file):
    """A watch that writes into a file; yields a function that reads what it has so far."""
    with file.open("wb") as out:
        process = subprocess.Popen(lab.kubectl("get", "--raw", path), stdout=out)

    def read():
        assert process.poll() is None, "a watch that broke off has a gap"
        lines = file.read_bytes().splitlines(keepends=True)
        events = [json.loads(line) for line in lines if line.endswith(b"\n")]
        return [Happened(kind, one["object"], one["type"] == "DELETED") for one in events]

    with process:
        try:
            yield read
        finally:
            process.kill()


def _listed(lab, path):
    return json.loads(cluster.kubectl(lab, "get", "--raw", path))


def _state(record):
    """The objects that are left after all of it, by their uid."""
    last = {one.uid: one for one in record}
    return {uid: one for uid, one in last.items() if not one.gone}


def turns(record):
    """Which nodes were being changed, by name: each set that differs from the one before.

    Those that take no pods, and those without the driver that they have or get.
    """
    sets = (frozenset(closed | lacking) for closed, lacking in _moments(record))
    return [names for names, _ in groupby(sets)]


def exposed(record):
    """The nodes that took pods at some moment while they lacked their driver."""
    return set().union(*(lacking - closed for closed, lacking in _moments(record)))


def _moments(record):
    """The nodes that take no pods, and those that lack their driver, after each event."""
    first, since = record
    state = _state(first)
    yield _of_moment(state)
    for one in since:
        state[one.uid] = one
        if one.gone:
            del state[one.uid]
        yield _of_moment(state)


def _of_moment(state):
    nodes, pods = (
        [one.document for one in state.values() if one.kind == kind] for kind in ("nodes", "pods")
    )
    names = {node["metadata"]["name"]: node for node in nodes}
    return (
        {name for name, node in names.items() if node["spec"].get("unschedulable")},
        {name for name, node in names.items() if _lacks_its_driver(node, pods)},
    )


def _lacks_its_driver(node, pods):
    """Whether a driver is to be there, ends or begins, and none serves."""
    meta = node["metadata"]
    own = [
        pod
        for pod in pods
        if pod["spec"].get("nodeName") == meta["name"]
        and DRIVER in pod["metadata"].get("labels", {}).items()
    ]
    serves = any(signs.is_ready(pod) and "deletionTimestamp" not in pod["metadata"] for pod in own)
    return not serves and bool(own or PLACED in meta.get("labels", {}))
