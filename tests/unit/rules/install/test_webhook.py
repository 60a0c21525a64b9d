"""The webhook of an installation: by choice, and such that it can lock nobody out."""

import pytest

from kube_rdma.programs.installation import assignment, objects
from kube_rdma.rules.install.presets import PRESETS
from kube_rdma.rules.install.webhook import NAME, SERVICE

ASKED = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


def made(*settings, preset="vke"):
    listed = objects([assignment(f"admission.webhook.{one}") for one in settings], preset)
    return {(one["kind"], one["metadata"]["name"]): one for one in listed}


@pytest.mark.parametrize("preset", PRESETS)
def test_no_preset_has_it_by_itself(preset):
    assert not {(kind, NAME) for kind in ASKED} & made(preset=preset).keys()


def test_the_controller_serves_what_the_api_server_asks():
    """Service, port and certificate are the same on both sides."""
    listed = made("secret=keys", "caBundle=QUJD")
    deployment = listed["Deployment", "kube-rdma-controller"]["spec"]["template"]
    service = listed["Service", SERVICE]
    assert service["spec"]["selector"] == deployment["metadata"]["labels"]
    (volume,) = deployment["spec"]["volumes"]
    assert volume["secret"] == {"secretName": "keys"}
    (container,) = deployment["spec"]["containers"]
    (mount,) = container["volumeMounts"]
    assert f"--admission={mount['mountPath']}" in container["args"]
    for kind, path in zip(ASKED, ("/complete", "/validate"), strict=True):
        (webhook,) = listed[kind, NAME]["webhooks"]
        config = webhook["clientConfig"]
        assert config["caBundle"] == "QUJD"
        assert config["service"] == {
            "name": SERVICE,
            "namespace": service["metadata"]["namespace"],
            "path": path,
        }


def test_it_can_lock_nobody_out():
    listed = made("secret=keys")
    for kind in ASKED:
        (webhook,) = listed[kind, NAME]["webhooks"]
        assert webhook["failurePolicy"] == "Ignore"
        assert webhook["timeoutSeconds"] <= 5
        assert "caBundle" not in webhook["clientConfig"]
        (rule,) = webhook["rules"]
        assert (rule["resources"], rule["operations"]) == (["pods"], ["CREATE"])
        (expression,) = webhook["namespaceSelector"]["matchExpressions"]
        assert expression["operator"] == "NotIn"
        assert {"kube-system", "kube-rdma-vke"} <= {*expression["values"]}


def test_cert_manager_may_write_the_authority():
    listed = made("secret=keys", "injectCaFrom=kube-rdma-vke/admission")
    for kind in ASKED:
        notes = listed[kind, NAME]["metadata"]["annotations"]
        assert notes == {"cert-manager.io/inject-ca-from": "kube-rdma-vke/admission"}
