"""What is created without kubectl: where, in which order, and what is left to kubectl."""

import json
from urllib.parse import parse_qs, urlsplit

import pytest

from kube_base.errors import Unavailable
from kube_rdma_lab.creating import LAST_APPLIED, Creator
from kube_rdma_lab.kinds import Kinds
from tests.unit.kube_rdma_lab.test_reading import CORE


class Server:
    """An API server that has a pod `there`, and keeps what is created."""

    def __init__(self):
        self.created = []
        self.away = False

    def document(self, path, form):
        return {"items": [{"metadata": {}, "versions": [CORE]}] if path == "/api" else []}

    def create(self, path, document):
        if self.away:
            raise Unavailable("away")
        if document["metadata"]["name"] == "there":
            return False
        self.created.append((path, document))
        return True


@pytest.fixture
def server():
    return Server()


def create(server, *documents):
    return list(Creator(server, Kinds(server)).create(documents))


def named(name, kind="Pod", **meta):
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, **meta}}


def test_new_objects_are_created_in_their_order_where_they_belong(server):
    documents = [named("n", "Node"), named("a"), named("b", namespace="team")]
    assert create(server, *documents) == []
    places = [urlsplit(path).path for path, _ in server.created]
    assert places == [
        "/api/v1/nodes",
        "/api/v1/namespaces/default/pods",
        "/api/v1/namespaces/team/pods",
    ]
    fields = parse_qs(urlsplit(server.created[0][0]).query)
    assert fields["fieldValidation"] == ["Strict"]


def test_a_new_object_remembers_what_was_applied(server):
    document = named("a", annotations={"own": "1"})
    assert create(server, document) == []
    ((_, created),) = server.created
    annotations = created["metadata"]["annotations"]
    assert json.loads(annotations.pop(LAST_APPLIED)) == document
    assert created == document


@pytest.mark.parametrize(
    "document",
    [
        named("there"),
        named("x", "Widget"),
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "a-"}},
    ],
)
def test_from_what_cannot_be_created_on_all_is_left_to_kubectl(server, document):
    assert create(server, named("a"), document, named("b")) == [document, named("b")]
    assert len(server.created) == 1


def test_a_server_that_does_not_answer_is_left_to_kubectl(server):
    server.away = True
    assert create(server, named("a")) == [named("a")]
