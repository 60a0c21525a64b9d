"""The webhook with a certificate that the controllers make: installed, broken, repaired.

No agent runs: pods are judged without being kept, so a refusal shows that the API server trusts
whoever answered it.
"""

import base64
import json
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from kube_base.errors import Unavailable
from kube_rdma.adapters.pki import certificates
from kube_rdma.adapters.pki.certificates import MadePair
from kube_rdma.programs.install.installation import assignment, objects
from kube_rdma.rules.install.webhook import NAME, OWN_SECRET, SERVICE
from kube_rdma_lab import cluster
from kube_rdma_lab.demo import scc
from kube_rdma_lab.waiting import until
from tests.kit.admission import VKE, asking, blocks, pod

NAMESPACE, TEAM = "kube-rdma-vke", "certified"
CONTROLLER = "deployment/kube-rdma-controller"
HOST = f"{SERVICE}.{NAMESPACE}.svc"
CONFIGURATIONS = ("validatingwebhookconfiguration", "mutatingwebhookconfiguration")
VALUES = (
    *("agent.enabled=false", "crds.install=false", "pools=[]", "admission.install=false"),
    # A policy of the API server would refuse before the webhook is asked.
    *("admission.pods.check=false", "admission.webhook.certificate=own"),
)
REFUSED = pod(asking(VKE, 4), annotations=blocks("rdma", "rdma"))


@pytest.fixture(scope="module")
def lab(native):
    """Native nodes with controllers that answer the API server, and users of it."""
    scc.install_kinds(native)
    metadata = {"name": TEAM}
    cluster.apply(native, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    made = objects([assignment(text) for text in VALUES], "vke")
    try:
        cluster.apply(native, *(each for each in made if each["kind"] == "Namespace"))
        cluster.apply(native, *made)
        cluster.kubectl(native, "rollout", "status", "-n", NAMESPACE, CONTROLLER)
        yield native
    finally:
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": made})
        cluster.kubectl(native, "delete", "--ignore-not-found", "-f", "-", stdin=text)
        cluster.kubectl(native, "delete", "namespace", TEAM)


@pytest.fixture(scope="module")
def refused(lab, tmp_path_factory):
    """Whether the webhook refuses a new pod now, which nobody keeps."""
    path = tmp_path_factory.mktemp("pods") / "pod.json"
    manifest = {**json.loads(json.dumps(REFUSED)), "apiVersion": "v1", "kind": "Pod"}
    manifest["metadata"]["namespace"] = TEAM
    for one in manifest["spec"]["containers"]:
        one["image"] = "example.org/none:1"
    path.write_text(json.dumps(manifest))

    def ask():
        try:
            cluster.kubectl(lab, "create", "--dry-run=server", "-f", str(path))
        except Unavailable as error:
            return f'webhook "{NAME}" denied the request' in str(error)
        return False

    until(lab, "the webhook asked", ask)
    return ask


def data(lab):
    """What the Secret holds, nothing where it is missing."""
    listed = cluster.get(lab, "-n", NAMESPACE, "secrets")["items"]
    (held,) = [one["data"] for one in listed if one["metadata"]["name"] == OWN_SECRET] or [{}]
    return {name: base64.b64decode(text) for name, text in held.items()}


def put(lab, **changes):
    """Somebody writes keys of the Secret, whose names have a dot for the underscore."""
    texts = {name.replace("_", "."): base64.b64encode(text) for name, text in changes.items()}
    patch = {"data": {name: text.decode() for name, text in texts.items()}}
    words = ("-n", NAMESPACE, f"secret/{OWN_SECRET}", "--type=merge", "-p", json.dumps(patch))
    cluster.kubectl(lab, "patch", *words)


def whole(held):
    """Whether it holds a certificate that is valid, by an authority that it has the key of."""
    kept = certificates.read(held)
    now = datetime.now(UTC)
    return (
        kept.server is not None
        and kept.server.issuer == kept.signer is not None
        and kept.server.hosts == (HOST,)
        and kept.server.life.begins <= now < kept.server.life.ends
    )


def trusted(lab):
    """The texts that the entries of both configurations have, and how many entries there are."""
    entries = [
        entry["clientConfig"].get("caBundle", "")
        for kind in CONFIGURATIONS
        for entry in cluster.get(lab, f"{kind}/{NAME}")["webhooks"]
    ]
    assert len(entries) == 4  # of pods three, of claims one
    return {base64.b64decode(text) for text in entries}


def repaired(lab, words):
    """Whether an Event tells of a repair for this reason."""
    events = cluster.get(lab, "-n", NAMESPACE, "events.events.k8s.io")["items"]
    listed = [one["note"] for one in events if one["reason"] == "CertificateRepaired"]
    return any(words in note for note in listed)


def test_a_pod_is_refused_by_a_webhook_that_made_its_certificate(lab, refused):
    """The bundle is the controller's field, not Helm's, so that no upgrade takes it away."""
    assert refused()
    held = data(lab)
    assert whole(held)
    assert trusted(lab) == {held["ca.crt"]}
    for kind in CONFIGURATIONS:
        words = ("get", kind, NAME, "-o", "json", "--show-managed-fields")
        fields = json.loads(cluster.kubectl(lab, *words))["metadata"]["managedFields"]
        owners = {one["manager"] for one in fields if "f:caBundle" in json.dumps(one)}
        assert owners == {"kube-rdma"}


def test_a_secret_that_was_deleted_is_made_again(lab, refused):
    """What was trusted stays trusted beside the new authority, for copies that are late."""
    former = data(lab)
    cluster.kubectl(lab, "delete", "-n", NAMESPACE, "secret", OWN_SECRET)
    until(lab, "a Secret", lambda: whole(data(lab)))
    assert data(lab)["ca.key"] != former["ca.key"]
    until(lab, "a refusal", refused)
    (bundle,) = trusted(lab)
    assert bundle == data(lab)["ca.crt"]
    assert bundle.startswith(former["ca.crt"])
    until(lab, "the Event", lambda: repaired(lab, "the Secret is missing"))


def test_an_expired_certificate_is_replaced(lab, refused):
    held = data(lab)
    now = datetime.now(UTC)
    signer = MadePair(held["ca.crt"], held["ca.key"])
    expired = certificates.new_server(
        certificates.new_key, signer, HOST, now - timedelta(days=2), now - timedelta(days=1)
    )
    put(lab, tls_crt=expired.certificate, tls_key=expired.key)
    until(lab, "a valid one", lambda: whole(data(lab)))
    assert data(lab)["ca.crt"] == held["ca.crt"]
    until(lab, "a refusal", refused)
    ends = x509.load_pem_x509_certificate(expired.certificate).not_valid_after_utc
    until(lab, "the Event", lambda: repaired(lab, f"to {ends:%Y-%m-%d %H:%M}"))


def test_nonsense_in_the_secret_and_in_the_bundle_is_put_right(lab, refused):
    put(lab, ca_key=b"nonsense", tls_crt=b"nonsense")
    until(lab, "a valid one", lambda: whole(data(lab)))
    patch = [{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]
    for kind in CONFIGURATIONS:
        cluster.kubectl(lab, "patch", kind, NAME, "--type=json", "-p", json.dumps(patch))
    until(lab, "the bundle again", lambda: trusted(lab) == {data(lab)["ca.crt"]})
    until(lab, "a refusal", refused)


def test_nothing_of_it_stays_when_the_webhook_goes(lab):
    """The last test of the file: the Secret belongs to the configuration."""
    cluster.kubectl(lab, "delete", *(f"{kind}/{NAME}" for kind in CONFIGURATIONS))
    until(lab, "no Secret", lambda: not data(lab))
