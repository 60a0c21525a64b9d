"""What is asked without kubectl: which words are understood, of what, and what is printed."""

import pytest

from kube_base.errors import Unavailable
from kube_rdma_lab.kinds import DISCOVERY, Kinds
from kube_rdma_lab.reading import Reader


def served(*resources):
    """A version of a group, with (plural, kind, namespaced, short name) of each resource."""
    return {
        "version": "v1",
        "resources": [
            {
                "resource": plural,
                "responseKind": {"kind": kind},
                "singularResource": kind.lower(),
                "scope": "Namespaced" if namespaced else "Cluster",
                "shortNames": [short],
            }
            for plural, kind, namespaced, short in resources
        ],
    }


CORE = served(
    ("pods", "Pod", True, "po"), ("nodes", "Node", False, "no"), ("events", "Event", True, "ev")
)
EVENTS = served(("events", "Event", True, "ev"))


class Answers:
    """An API server that has one pod, and notes what it was asked for."""

    def __init__(self):
        self.groups = [{"metadata": {"name": "events.k8s.io"}, "versions": [EVENTS]}]
        self.asked = []

    def document(self, path, form="application/json"):
        if form == DISCOVERY:
            core = {"metadata": {}, "versions": [CORE]}
            return {"items": [core] if path == "/api" else self.groups}
        self.asked.append(path)
        metadata = {"name": "a", "managedFields": [{}]}
        if path.endswith("/none"):
            return None
        if path.endswith("/a"):
            return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
        return {"apiVersion": "v1", "kind": "PodList", "items": [{"metadata": metadata}]}


@pytest.fixture
def server():
    return Answers()


@pytest.fixture
def reader(server):
    return Reader(server, Kinds(server))


@pytest.mark.parametrize(
    ("words", "path"),
    [
        (("pods",), "/api/v1/namespaces/default/pods"),
        (("Pod/a",), "/api/v1/namespaces/default/pods/a"),
        (("po", "a", "-n", "team"), "/api/v1/namespaces/team/pods/a"),
        (("-A", "pods", "-l", "app=x y"), "/api/v1/pods?labelSelector=app%3Dx+y"),
        (("node", "a", "-n", "team"), "/api/v1/nodes/a"),
        (("events", "-A"), "/api/v1/events"),
        (
            ("events.events.k8s.io", "-A", "--field-selector=reason=Lost"),
            "/apis/events.k8s.io/v1/events?fieldSelector=reason%3DLost",
        ),
    ],
)
def test_words_name_a_path(server, reader, words, path):
    assert reader.get(words)
    assert server.asked == [path]


def test_objects_are_printed_as_kubectl_prints_them(reader):
    shown = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}
    assert reader.get(("pod/a",)) == shown
    assert reader.get(("pods",))["items"] == [shown]


@pytest.mark.parametrize(
    "words",
    [("pods,nodes",), ("pods", "a", "b"), ("pod/a/b",), ("pods", "-w"), ("pod/none",), ("x",), ()],
)
def test_what_is_not_understood_or_not_there_is_left_to_kubectl(reader, words):
    assert reader.get(words) is None


def test_a_server_that_does_not_answer_is_left_to_kubectl(server, reader, monkeypatch):
    def away(path, form=""):
        raise Unavailable("away")

    monkeypatch.setattr(server, "document", away)
    assert reader.get(("pods",)) is None


def test_a_kind_that_came_later_is_found(server, reader):
    assert reader.get(("widgets",)) is None
    widgets = served(("widgets", "Widget", False, "w"))
    server.groups.append({"metadata": {"name": "example.org"}, "versions": [widgets]})
    assert reader.get(("widgets",))
    assert server.asked == ["/apis/example.org/v1/widgets"]
