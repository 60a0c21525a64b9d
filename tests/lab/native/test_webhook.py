"""Admission webhooks work in the lab: the API server asks one that runs in a pod."""

import base64
import json

import pytest

from kube_base.errors import Unavailable
from kube_rdma_lab import cluster
from kube_rdma_lab.pki import Authority
from kube_rdma_lab.waiting import until

NAME = "refuser"
HOST = f"{NAME}.default.svc"
MARK = {"refuser": "ask"}
SERVER = """\
import http.server, json, ssl

class Refuser(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = review["request"]["object"]["metadata"]["name"]
        status = {"message": f"a pod refuses {name}"}
        review["response"] = {"uid": review["request"]["uid"], "allowed": False, "status": status}
        body = json.dumps(review).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
context.load_cert_chain("/keys/tls.crt", "/keys/tls.key")
server = http.server.ThreadingHTTPServer(("", 8443), Refuser)
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""


@pytest.fixture(scope="module")
def lab(native):
    """Native nodes: the API server and one pod are enough."""
    return native


def named(kind, version="v1", **fields):
    """Return an object called NAME."""
    metadata = {"name": NAME, "labels": {"app": NAME}}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}


def encoded(data):
    return base64.b64encode(data).decode()


def objects():
    """Return Secret, pod, Service and webhook, whose certificate was issued for the Service."""
    authority = Authority("webhook")
    pair = authority.issue(HOST, hosts=(HOST,))
    keys = {"tls.crt": encoded(pair.certificate), "tls.key": encoded(pair.key)}
    container = {
        "name": NAME,
        "image": "kube-rdma.io/kube-rdma:dev",
        "command": ["python3", "-c", SERVER],
        "readinessProbe": {"tcpSocket": {"port": 8443}, "periodSeconds": 1},
        "volumeMounts": [{"name": "keys", "mountPath": "/keys"}],
    }
    volume = {"name": "keys", "secret": {"secretName": NAME}}
    rule = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"]}
    webhook = {
        "name": HOST,
        "clientConfig": {
            "service": {"name": NAME, "namespace": "default", "port": 443},
            "caBundle": encoded(authority.certificate),
        },
        "rules": [{**rule, "resources": ["configmaps"]}],
        "objectSelector": {"matchLabels": MARK},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
    }
    ports = [{"port": 443, "targetPort": 8443}]
    return (
        named("Secret", data=keys),
        named("Pod", spec={"containers": [container], "volumes": [volume]}),
        named("Service", spec={"selector": {"app": NAME}, "ports": ports}),
        named(
            "ValidatingWebhookConfiguration", "admissionregistration.k8s.io/v1", webhooks=[webhook]
        ),
    )


@pytest.fixture
def create(lab, tmp_path):
    """Let the API server judge a ConfigMap with these labels, without keeping it."""

    def ask(labels):
        metadata = {"name": "asked", "labels": labels}
        path = tmp_path / "asked.json"
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}))
        return cluster.kubectl(lab, "create", "--dry-run=server", "-f", str(path))

    return ask


@pytest.fixture
def webhook(lab, tmp_path):
    """A webhook in a pod, ready behind its Service."""
    path = tmp_path / "webhook.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects()}))
    cluster.kubectl(lab, "apply", "-f", str(path))
    try:
        cluster.ready(lab, NAME)
        slices = ("endpointslice", "-l", f"kubernetes.io/service-name={NAME}")
        ready = "--for=jsonpath={.endpoints[0].conditions.ready}=true"
        cluster.wait(lab, *slices, ready)
        yield
    finally:
        cluster.kubectl(lab, "delete", "-f", str(path), "--grace-period=0", "--force")


def refusal(lab, create):
    """Return how a marked ConfigMap is refused; the API server learns of webhooks with delay."""

    def refused():
        try:
            create(MARK)
        except Unavailable as error:
            return str(error)
        return None

    return until(lab, "a refusal by the webhook", refused)


def test_the_api_server_asks_a_webhook_in_a_pod(lab, webhook, create):
    assert f'admission webhook "{HOST}" denied the request: a pod refuses asked' in refusal(
        lab, create
    )
    assert "created" in create({})
