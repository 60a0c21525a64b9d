"""The webhook of an installation: by choice, and such that it can lock nobody out."""

import pytest

from kube_base.errors import Refused
from kube_rdma.api.admission.settings import load
from kube_rdma.api.claims.claim_configs import PLACES
from kube_rdma.model.admission.facts import USUAL
from kube_rdma.model.claims.device import DRIVER
from kube_rdma.programs.admission.server import COMPLETE, CONFINED, PORT, VALIDATE
from kube_rdma.programs.install.installation import assignment, objects
from kube_rdma.rules.attach.requests import POD_NETWORKS
from kube_rdma.rules.install.presets import DEFAULTS, PRESETS
from kube_rdma.rules.install.webhook import NAME, OWN_SECRET, SERVICE, webhook_names

CLAIMS = "claims.kube-rdma.io"
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
    assert service["spec"]["selector"].items() <= deployment["metadata"]["labels"].items()
    (volume,) = deployment["spec"]["volumes"]
    assert volume["secret"] == {"secretName": "keys"}
    (container,) = deployment["spec"]["containers"]
    (mount,) = container["volumeMounts"]
    assert f"--admission={mount['mountPath']}" in container["args"]
    paths = {}
    for kind in ASKED:
        for webhook in listed[kind, NAME]["webhooks"]:
            config = webhook["clientConfig"]
            assert config["caBundle"] == "QUJD"
            asked = config["service"]
            assert asked["name"] == SERVICE
            assert asked["namespace"] == service["metadata"]["namespace"]
            paths.setdefault(kind, []).append(asked["path"])
    assert paths == {ASKED[0]: [COMPLETE, CONFINED], ASKED[1]: [VALIDATE, VALIDATE]}


def test_the_manifests_say_what_the_controller_s_code_says():
    """Its port, the settings that it takes, and the annotation by which a pod asks for networks."""
    listed = made("secret=keys")
    assert listed["Service", SERVICE]["spec"]["ports"][0]["targetPort"] == PORT
    container, _ = controller(listed)
    option = "--admission-set="
    words = [word.removeprefix(option) for word in container["args"] if word.startswith(option)]
    assert load(words, option) == USUAL
    own = DEFAULTS["admission"]["pods"]
    texts = {name for name, value in own.items() if isinstance(value, str)}
    assert {word.partition("=")[0] for word in words} == texts
    webhooks = [one for kind in ASKED for one in listed[kind, NAME]["webhooks"]]
    (of_claims,) = [one for one in webhooks if one["name"] == CLAIMS]
    webhooks.remove(of_claims)
    (condition,) = of_claims["matchConditions"]
    assert f"== '{DRIVER}'" in condition["expression"]
    (rule,) = of_claims["rules"]
    assert {f"{kind.lower()}{'e' * kind.endswith('s')}s" for kind in PLACES} == {*rule["resources"]}
    conditions = {one["matchConditions"][0]["expression"] for one in webhooks}
    assert len(conditions) == 1
    assert f"'{POD_NETWORKS}' in object.metadata" in conditions.pop()


def test_each_namespace_is_asked_about_by_half_of_what_completes():
    """By the level of Pod Security, which a namespace has or has not."""
    (free, confined) = made("secret=keys")[ASKED[0], NAME]["webhooks"]
    levels = [
        (one["operator"], one["values"])
        for webhook in (free, confined)
        for one in webhook["namespaceSelector"]["matchExpressions"]
        if one["key"] == "pod-security.kubernetes.io/enforce"
    ]
    assert levels == [("NotIn", ["baseline", "restricted"]), ("In", ["baseline", "restricted"])]


def test_it_can_lock_nobody_out():
    listed = made("secret=keys")
    for webhook in (one for kind in ASKED for one in listed[kind, NAME]["webhooks"]):
        assert webhook["failurePolicy"] == "Ignore"
        assert webhook["timeoutSeconds"] <= 5
        assert "caBundle" not in webhook["clientConfig"]
        (rule,) = webhook["rules"]
        if webhook["name"] != CLAIMS:
            assert (rule["resources"], rule["operations"]) == (["pods"], ["CREATE"])
        expression = webhook["namespaceSelector"]["matchExpressions"][0]
        assert expression["operator"] == "NotIn"
        assert {"kube-system", "kube-rdma-vke"} <= {*expression["values"]}


def test_cert_manager_may_write_the_authority():
    listed = made("secret=keys", "injectCaFrom=kube-rdma-vke/admission")
    for kind in ASKED:
        notes = listed[kind, NAME]["metadata"]["annotations"]
        assert notes == {"cert-manager.io/inject-ca-from": "kube-rdma-vke/admission"}


def test_with_a_certificate_of_its_own_the_controller_may_write_three_objects_by_name():
    """Nothing is mounted, no authority is written by who installs, and no other preset has more."""
    listed = made("certificate=own")
    container, pod = controller(listed)
    assert "--admission-own" in container["args"]
    assert not container.get("volumeMounts")
    assert not pod.get("volumes")
    assert (
        container["readinessProbe"]["tcpSocket"]["port"]
        == listed["Service", SERVICE]["spec"]["ports"][0]["targetPort"]
    )
    for kind in ASKED:
        assert all("caBundle" not in one["clientConfig"] for one in listed[kind, NAME]["webhooks"])
    mounted = made("secret=keys")
    added = {name: one for name, one in listed.items() if name not in mounted}
    rules = [rule for one in added.values() for rule in one.get("rules", ())]
    assert {(*rule["resources"], *rule["resourceNames"]) for rule in rules} == {
        ("secrets", OWN_SECRET),
        ("validatingwebhookconfigurations", NAME),
        ("mutatingwebhookconfigurations", NAME),
    }
    assert {kind for kind, _ in added} == {
        *("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"),
    }
    assert all("delete" not in rule["verbs"] for rule in rules)


@pytest.mark.parametrize("fullname", ["", "rdma-a"])
def test_the_controller_knows_the_names_of_its_release(fullname):
    """It is told the value, and looks for the objects of these names."""
    layers = [assignment("admission.webhook.certificate=own")]
    layers += [assignment(f"fullnameOverride={fullname}")] if fullname else []
    listed = {(one["kind"], one["metadata"]["name"]): one for one in objects(layers, "vke")}
    names = webhook_names(fullname)
    service = listed["Service", names.service]
    (secrets,) = [
        rule
        for (kind, _), one in listed.items()
        if kind == "Role"
        for rule in one["rules"]
        if rule["resources"] == ["secrets"]
    ]
    assert secrets["resourceNames"] == [names.secret]
    for kind in ASKED:
        for webhook in listed[kind, names.configuration]["webhooks"]:
            assert webhook["clientConfig"]["service"]["name"] == service["metadata"]["name"]
    (deployment,) = [one for (kind, _), one in listed.items() if kind == "Deployment"]
    words = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    option = "--fullname="
    told = [word.removeprefix(option) for word in words if word.startswith(option)]
    assert told == ([fullname] if fullname else [])


@pytest.mark.parametrize("other", ["secret=keys", "caBundle=QUJD", "injectCaFrom=a/b"])
def test_of_two_certificates_one_is_refused(other):
    with pytest.raises(Refused, match=rf"admission\.webhook: .*{other.partition('=')[0]}"):
        made("certificate=own", other)


def controller(listed):
    pod = listed["Deployment", "kube-rdma-controller"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    return container, pod
