"""`kube-rdma config check` on manifests: what they mean, and what they say together."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Refused
from kube_rdma.admission.manifest_check import check as judge
from kube_rdma.cli.config import config
from kube_rdma.lib.text.reader import read_all

EXAMPLES = Path(__file__).parents[3] / "examples"
WORKER = "spec.mpiReplicaSpecs.Worker.template"
PAIR = """\
[{"cniConf": {"name": "rdma"}}, {"cniConf": {"name": "rdma"}}]"""
JOB = """\
# a job of two workers
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: train, namespace: team}
spec:
  mpiReplicaSpecs:
    Worker:
      template:
        metadata:
          annotations:
            k8s.volcengine.com/pod-networks: '%s'
        spec:
          nodeSelector: {vke.node.rdma.mode: %s}
          containers:
          - name: worker
            resources: {limits: {vke.volcengine.com/rdma: %s}}
          volumes:
          - {name: data, persistentVolumeClaim: {claimName: files}}
"""
CLAIM = """\
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: files, namespace: team}
spec: {storageClassName: fast}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: fast}
provisioner: vepfs.csi.volcengine.com
"""
VOLUME = """\
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: files, namespace: team}
spec: {storageClassName: ""}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: pv-1}
spec:
  csi: {driver: vepfs.csi.volcengine.com}
  claimRef: {namespace: team, name: files}
"""


@pytest.fixture
def check(tmp_path):
    """Run the check on texts, a file for each."""

    def run(*texts, output="table"):
        files = [tmp_path / f"{number}.yaml" for number in range(len(texts))]
        for file, text in zip(files, texts, strict=True):
            file.write_text(text)
        return CliRunner().invoke(config, ["check", *map(str, files), "-o", output])

    return run


def faults(result):
    """Each fault with its place from the file's name on, after its folder."""
    assert result.exit_code == 3, result.output
    errors = json.loads(result.output)["errors"]
    return [(one["where"].rpartition("/0.yaml:")[2], one["problem"]) for one in errors]


def test_every_example_is_fit_to_be_applied():
    paths = sorted(EXAMPLES.glob("*/*.y*ml"))
    files = [str(path) for path in paths if not path.name.endswith("values.yaml")]
    result = CliRunner().invoke(config, ["check", *files, "-o", "json"])
    shown = json.loads(result.output)
    assert (result.exit_code, shown["errors"]) == (0, [])
    assert {one["meaning"] for one in shown["objects"] if one["kind"] == "Job"} == {
        "pods with nvidia.com/gpu: 8, rdma/hca: 1",
        "pods with nvidia.com/gpu: 8, rdma/nic: 8",
        "pods with rdma/nic: 1",
    }


@pytest.mark.parametrize("storage", [CLAIM, VOLUME])
def test_what_several_objects_say_together_is_judged(check, storage):
    """The mode is the selector's, the driver that of the claim's volume or class."""
    (fault,) = faults(check(JOB % (PAIR, "exclusive", 2) + storage, output="json"))
    assert fault[0] == f"18:13: {WORKER}.spec.volumes[0]"
    assert "vePFS" in fault[1]
    assert check(JOB % (PAIR, "shared", 2) + storage).exit_code == 0


NET = """\
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata:
  name: fast
  annotations: {k8s.v1.cni.cncf.io/resourceName: rdma/fast}
spec:
  config: |
    {"type": "macvlan", "master": "ens2f0", "ipam": {"type": "kube-rdma-ipam", "pool": "%s"}}
---
apiVersion: kube-rdma.io/v1alpha1
kind: IPPool
metadata: {name: fast}
spec: {ranges: [{subnet: 10.0.0.0/24}]}
---
apiVersion: kube-rdma.io/v1alpha1
kind: NodePolicy
metadata: {name: all}
spec:
  pools: [{resource: rdma/fast, mode: %s}]
"""
POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: a
  annotations: {k8s.v1.cni.cncf.io/networks: "fast, fast@net7"}
spec:
  containers:
  - {name: a, resources: {limits: {rdma/fast: %s}}, securityContext: {privileged: true}}
"""


MAP = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: rdma-devices}
data:
  other.conf: |
    mode: ipvs
    kind: KubeProxyConfiguration
  text: "no: configuration: at all"
  config.json: |
    {"mode": "%s"%s}
  list: "[mode, hca]"
"""


def test_a_configuration_inside_of_a_config_map_is_read_as_the_agent_reads_it(check):
    assert "offers rdma/hca" in check(MAP % ("hca", "")).output
    ((where, problem),) = faults(check(MAP % ("hcaa", ""), output="json"))
    assert where == '9:16: data."config.json":1:10: mode'
    assert problem.startswith('"hcaa" is not a value')


def test_what_counts_is_set_by_the_administrator(check, tmp_path):
    """By the names of the chart's values."""
    file = tmp_path / "pod.yaml"
    file.write_text(POD % 2)
    words = ["check", str(file), "--admission-set"]
    said = CliRunner().invoke(config, [*words, "hostNetworkResources=rdma/fast"]).output
    assert "is for pods with hostNetwork: true" in " ".join(said.split())
    refused = CliRunner().invoke(config, [*words, "mgpuResource=a"]).exception
    assert isinstance(refused, Refused)
    assert refused.remedy.startswith("Did you mean mgpuResources?")


def test_what_is_not_looked_at_is_counted(check):
    text = "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n---\n" * 2
    assert check(text).output == "Objects that are not looked at: 2\n"


@pytest.mark.parametrize(
    ("kind", "spec", "says"),
    [
        ("RepairPolicy", "{when: {healthyCardsBelow: 8}}", "a dry run of taints"),
        ("RepairPolicy", "{when: {errors: true}, enforce: true}", "taints for nodes"),
        ("RepairPolicy", "{when: {healthyCardsBelow: 0}}", "0 is too small. Write 1 or more."),
        ("BandwidthCheck", "{selector: {a: b}, pairs: ring}", "measurement of pods, pairs: ring"),
        ("BandwidthCheck", "{}", "spec: it chooses no pods."),
        ("BandwidthCheck", "{selectr: {a: b}}", 'Did you mean "selector"?'),
    ],
)
def test_own_kinds_of_other_packages_are_judged(check, kind, spec, says):
    head = f"apiVersion: kube-rdma.io/v1alpha1\nkind: {kind}\nmetadata: {{name: cards}}\n"
    assert says in " ".join(check(f"{head}spec: {spec}").output.split())


def test_files_without_any_object_say_so(check):
    assert check("# nothing\n", "---\n").output == "There is no object.\n"


def test_what_admission_would_add_is_shown(check):
    text = POD.replace("privileged: true", "runAsUser: 0") % 2
    assert "Admission adds IPC_LOCK for container a" in check(text).output
    (added,) = json.loads(check(text, output="json").output)["additions"]
    assert added["where"].endswith(
        "0.yaml:8:69: spec.containers[0].securityContext.capabilities.add"
    )


@pytest.mark.parametrize(
    ("namespace", "image", "told"),
    [
        ("", "ofed-driver", True),  # as 0.1.0 calls it
        (", namespace: mlnx-network-operator", "ofed-driver", False),
        ("", "doca-driver", False),
    ],
)
def test_a_policy_that_no_operator_would_see_is_told(check, namespace, image, told):
    """Only where its file is of 0.1.0, by whose definition policies have namespaces."""
    text = f"""\
apiVersion: mellanox.com/v1alpha1
kind: NicClusterPolicy
metadata: {{name: a{namespace}}}
spec: {{ofedDriver: {{image: {image}, repository: b, version: c}}}}
"""
    result = check(text, output="json")
    warnings = [
        one
        for one in json.loads(result.output)["warnings"]
        if one["where"].endswith("/0.yaml:3:1: metadata")
    ]
    assert result.exit_code == 0
    assert len(warnings) == told
    for warning in warnings:
        assert (
            "with the definition of 0.1.0 it is in one that no operator sees" in warning["problem"]
        )
        assert warning["remedy"].startswith("Add metadata.namespace: mlnx-network-operator")


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("NicNodePolicy", "reads no NicNodePolicy"),
        ("MacvlanNetwork", "only NVIDIA's operator makes a NetworkAttachmentDefinition"),
        ("HostDeviceNetwork", "only NVIDIA's operator makes a NetworkAttachmentDefinition"),
        ("IPoIBNetwork", "only NVIDIA's operator makes a NetworkAttachmentDefinition"),
    ],
)
def test_kinds_of_the_vendor_s_operator_are_told(check, kind, says):
    text = f"apiVersion: mellanox.com/v1alpha1\nkind: {kind}\nmetadata: {{name: a}}\nspec: {{}}\n"
    result = check(text, output="json")
    (warning,) = json.loads(result.output)["warnings"]
    assert result.exit_code == 0
    assert warning["where"].endswith("/0.yaml:2:7: kind")
    assert says in warning["problem"]
    assert warning["remedy"]


RELEASES = Path(__file__).parents[2] / "data" / "nic-cluster-policies"


@pytest.mark.parametrize(
    ("release", "meaning"),
    [
        ("0.1.0", "drivers and offers rdma/fast_a"),
        ("26.7", "drivers and offers rdma/fast_a, nvidia.com/functions_a"),
    ],
)
def test_a_policy_of_any_release_is_called_what_it_deploys(check, release, meaning):
    result = check((RELEASES / f"{release}.yaml").read_text(), output="json")
    (shown,) = json.loads(result.output)["objects"]
    assert shown["meaning"] == meaning


@pytest.mark.parametrize(
    ("spec", "meaning"),
    [
        ("{nvIpam: {image: a}}", "nothing that kube-rdma deploys"),
        ("{nvPeerDriver: {image: a, repository: b, version: c}}", "drivers"),
        (
            "{sriovDevicePlugin: {image: a, repository: b, version: c}}",
            "a device plugin with a ConfigMap of yours",
        ),
    ],
)
def test_a_policy_without_a_driver_is_not_called_drivers(check, spec, meaning):
    head = "apiVersion: mellanox.com/v1alpha1\nkind: NicClusterPolicy\nmetadata: {name: a}\n"
    (shown,) = json.loads(check(f"{head}spec: {spec}\n", output="json").output)["objects"]
    assert shown["meaning"] == meaning


BAD = """\
apiVersion: v1
kind: Pod
spec: {containers: 7}
---
apiVersion: mellanox.com/v1alpha1
kind: NicClusterPolicy
metadata: {name: a}
spec: {devicePlugin: {image: a, repository: b, version: c, config: '{"mode": 3}'}}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: a}
spec: {config: '{"type": "macvlan", "mtu": "x"}'}
---
apiVersion: kube-rdma.io/v1alpha1
kind: IPPool
metadata: {name: a}
spec: {ranges: [{subnet: 10.0.0.0}]}
---
mode: hcaa
"""


def test_each_fault_of_all_documents_has_its_line(check):
    places = [where.split(": ")[0] for where, _ in faults(check(BAD, output="json"))]
    assert places == ["3:20", "8:68", "13:16", "18:26", "20:7"]
    result = check(BAD, output="json")
    shown = json.loads(result.output)
    assert result.exit_code == 3
    assert len(shown["errors"]) == 5
    assert [one["meaning"] for one in shown["objects"]] == ["refused"] * 5
    assert all(one["remedy"] for one in shown["errors"])


def test_a_node_is_for_a_configuration_alone(check, tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text(POD % 1)
    assert CliRunner().invoke(config, ["check", str(file), "--node"]).exit_code == 2


KINDS = st.sampled_from(
    [
        *("v1 Pod", "v1 ConfigMap", "v1 PersistentVolume", "v1 PersistentVolumeClaim"),
        *("batch/v1 Job", "batch.volcano.sh/v1 Job", "kubeflow.org/v1 MPIJob"),
        *("kube-rdma.io/v1alpha1 NodePolicy", "kube-rdma.io/v1alpha1 IPPool", "v1 List"),
        *("mellanox.com/v1alpha1 NicClusterPolicy", "storage.k8s.io/v1 StorageClass"),
        *("k8s.cni.cncf.io/v1 NetworkAttachmentDefinition", "example.com/v1 Unknown"),
        *("v1 ResourceQuota", "kueue.x-k8s.io/v1 ClusterQueue", "kueue.x-k8s.io/v1 LocalQueue"),
        *(
            "apps/v1 DaemonSet",
            "resource.k8s.io/v1 ResourceClaim",
            "resource.k8s.io/v1 DeviceClass",
        ),
    ]
)
FIELDS = st.sampled_from(
    [
        *("metadata", "name", "namespace", "annotations", "spec", "data", "template", "items"),
        *("containers", "tasks", "mpiReplicaSpecs", "config", "ranges", "pools", "csi"),
        *("resources", "limits", "image", "rdma/a", "podTemplateOverrides", "handler"),
        *("claimRef", "nodeSelector", "devicePlugin", "provisioner", "storageClassName"),
        *(
            "hard",
            "resourceGroups",
            "coveredResources",
            "volumes",
            "configMap",
            "labels",
            "devices",
        ),
        *("resourceClaims", "source", "selectors", "cel", "custom", "extraPodSpec", "claims"),
    ]
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text("ab1é/-: ", max_size=6)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(FIELDS, inner, max_size=4)
    ),
    max_leaves=20,
)


@given(st.lists(st.tuples(KINDS, st.dictionaries(FIELDS, VALUES, max_size=4)), max_size=3))
def test_no_manifest_is_a_crash(listed):
    """What cannot be read is refused with its file and line."""
    texts = []
    for kind, fields in listed:
        version, name = kind.split()
        texts.append(json.dumps({"apiVersion": version, "kind": name, **fields}))
    checked = judge(read_all("\n---\n".join(texts).encode(), "file"))
    assert len(checked.objects) >= len([one for one in listed if one[0] != "v1 List"])
    for error in checked.errors:
        assert error.subject.startswith("file:")
        assert error.remedy


def warnings(result):
    """Each warning with its place after the file's folder."""
    shown = json.loads(result.output)
    return [(one["where"].rpartition("/0.yaml:")[2], one["problem"]) for one in shown["warnings"]]


def test_one_unreadable_document_hides_no_other(check):
    """Nor one unreadable file: the rest is judged, and each has its sentence."""
    job = JOB % (PAIR, "shared", 4)
    result = check(f"a: [\n---\n{job}", "b: !Ref c\n", POD % 1, output="json")
    shown = json.loads(result.output)
    assert result.exit_code == 3
    places = [re.search(r"[01].yaml:[0-9]+", one["where"])[0] for one in shown["errors"]]
    assert places == ["0.yaml:2", "1.yaml:1", "0.yaml:13"]
    assert "2 blocks" in shown["errors"][2]["problem"]
    assert [one["meaning"] for one in shown["objects"]] == [
        *("unreadable", "pods with vke.volcengine.com/rdma: 4"),
        *("unreadable", "pods with rdma/fast: 1"),
    ]
    assert shown["objects"][0]["at"].endswith("0.yaml:2")


def test_a_file_that_is_not_there_hides_no_other(check, tmp_path):
    (tmp_path / "a.yaml").write_text(POD % 1)
    result = CliRunner().invoke(config, ["check", str(tmp_path / "a.yaml"), "gone.yaml"])
    assert "pods with rdma/fast: 1" in result.output
    assert result.exit_code == 3
    assert result.stderr.startswith("✗ gone.yaml: ")


def test_what_kubectl_takes_is_a_warning_in_manifests(check):
    """A configuration is read by an agent, which takes none of it."""
    twice = POD.replace("limits: {rdma/fast: %s}", "limits: {rdma/fast: 3}, limits: {rdma/fast: 1}")
    ((place, problem),) = warnings(check(twice, output="json"))
    assert place.startswith("8:")
    assert "given twice" in problem
    alias = POD.replace("name: a\n", "name: &n a\n").replace("{name: a,", "{name: *n,") % 1
    ((_, problem),) = warnings(check(alias, output="json"))
    assert "an alias is read" in problem
    ((_, problem),) = faults(check(f"{POD % 1}---\nmode: &m hca\nmode: *m\n", output="json"))[:1]
    assert "an alias is read" in problem


POOLS = {
    "ConfigMap": MAP.replace(
        '{"mode": "%s"%s}',
        '{"resourceList": [{"resourceName": "a", "selectors": {"vendors": ["15b3"]}}]}',
    ),
    "NicClusterPolicy": """\
apiVersion: mellanox.com/v1alpha1
kind: NicClusterPolicy
metadata: {name: a, namespace: b}
spec:
  devicePlugin:
    image: a
    repository: b
    version: c
    config: |
      {"configList": [{"resourceName": "a", "resourcePrefix": "intel.com", "rdmaHcaMax": 1,
                       "selectors": {"vendors": ["15b3"]}}]}
""",
    "NetworkAttachmentDefinition": """\
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: n, annotations: {k8s.v1.cni.cncf.io/resourceName: intel.com/a}}
spec: {config: '{"type": "sriov"}'}
""",
    "SriovNetwork": """\
apiVersion: sriovnetwork.openshift.io/v1
kind: SriovNetwork
metadata: {name: n}
spec: {resourceName: intel.com/a}
""",
}
MGPU = """\
---
apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  containers:
  - {name: a, resources: {limits: {intel.com/a: 1, vke.volcengine.com/mgpu-core: 1}}}
"""


@pytest.mark.parametrize("kind", POOLS)
def test_what_an_object_of_the_files_names_is_a_share(check, kind):
    """Without any list of prefixes: the pod alone is nobody's business."""
    pool = POOLS[kind]
    assert check(MGPU.removeprefix("---\n")).exit_code == 0
    problems = [problem for _, problem in faults(check(pool + MGPU, output="json"))]
    assert problems == [
        "RDMA (intel.com/a) and mGPU (vke.volcengine.com/mgpu-core) cannot be used together"
    ]
    misspelt = check(pool + MGPU.replace("intel.com/a", "intel.con/a"), output="json")
    assert any("names intel.con/a" in problem for _, problem in warnings(misspelt))


@pytest.mark.parametrize(("plugin", "refused"), [("amd-host-device", True), ("macvlan", False)])
def test_a_network_that_is_nearly_json_is_told(check, plugin, refused):
    """Refused where a binary reads it; kube-rdma reads it, and Multus does not."""
    text = NET.partition("---")[0] % "fast"
    text = text.replace("macvlan", plugin).replace('"}}', '"},}')
    result = check(text, output="json")
    shown = json.loads(result.output)
    assert (result.exit_code, bool(shown["errors"])) == ((3, True) if refused else (0, False))
    ((where, _),) = [
        (one["where"], one["problem"])
        for one in (*shown["errors"], *shown["warnings"])
        if "not JSON" in one["problem"]
    ]
    assert where.endswith("0.yaml:7:11: spec.config")


CLAIMS = """\
apiVersion: resource.k8s.io/%s
kind: ResourceClaimTemplate
metadata: {name: rdma, namespace: team}
spec:
  spec:
    devices:
      requests: [{name: card, exactly: {deviceClassName: rdma}}]
      config:
      - opaque:
          driver: rdma.kube-rdma.io
          parameters: {apiVersion: kube-rdma.io/v1alpha1, kind: ClaimParameters, mtu: %s}
---
apiVersion: example.com/v1
kind: Trainer
metadata: {name: train}
spec:
  workers:
  - claim:
      requests: [{name: card}]
      config:
      - opaque:
          driver: rdma.kube-rdma.io
          parameters: {apiVersion: kube-rdma.io/v1alpha1, kind: ClaimParameters, mtu: %s}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: rdma}
spec: {}
"""


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_claims_are_judged_wherever_they_stand(check, version):
    shown = json.loads(check(CLAIMS % (version, 9000, 9000), output="json").output)
    assert shown["errors"] == []
    assert [one["meaning"] for one in shown["objects"]] == [
        "claim template with parameters of kube-rdma",
        "claims with parameters of kube-rdma",
        "device class",
    ]
    problem = '"fast" is not a whole number'
    assert faults(check(CLAIMS % (version, "fast", "fast"), output="json")) == [
        ("11:87: spec.spec.devices.config[0].opaque.parameters.mtu", problem),
        ("23:87: spec.workers[0].claim.config[0].opaque.parameters.mtu", problem),
    ]


def test_parameters_alone_are_judged(check):
    text = "apiVersion: kube-rdma.io/v1alpha1\nkind: ClaimParameters\nmtu: %s\n"
    assert "to be written below opaque.parameters" in " ".join(check(text % 9000).output.split())
    assert faults(check(text % -1, output="json")) == [("3:6: mtu", "-1 is too small")]


def test_an_annotation_at_a_deployment_is_told(check):
    """With the line of the annotation itself."""
    deployment = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: a
  annotations:
    k8s.v1.cni.cncf.io/networks: fast
spec: {template: {spec: {containers: [{name: a}]}}}
"""
    ((where, problem),) = warnings(check(deployment, output="json"))
    assert where == '6:5: metadata.annotations."k8s.v1.cni.cncf.io/networks"'
    assert problem == "the annotation stands at the Deployment, from where no pod gets it"
    copied = deployment.replace("apps/v1", "serving.kserve.io/v1alpha2")
    kserve = copied.replace("Deployment", "LLMInferenceService")  # its controller copies it
    assert not warnings(check(kserve, output="json"))


def test_a_runtime_class_of_the_files_says_its_handler(check):
    named = (
        "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: x}\nhandler: %s\n---\n"
    )
    pod = POD.replace("spec:\n", "spec:\n  runtimeClassName: x\n") % 2
    assert "virtual machine" in str(warnings(check(named % "kata-qemu" + pod, output="json")))
    assert "virtual machine" not in str(warnings(check(named % "runc" + pod, output="json")))


def test_what_an_interface_of_a_network_cannot_have_is_told(check):
    """By the rules of the attachment itself."""
    net = NET % ("fast", "shared")
    entry = '[{"name": "fast", "mac": "02:00:00:00:00:01"}]'
    pod = POD.replace('"fast, fast@net7"', f"'{entry}'") % 1
    assert not warnings(check(pod + "---\n" + net, output="json"))
    ipvlan = pod + "---\n" + net.replace("macvlan", "ipvlan")
    ((place, problem),) = warnings(check(ipvlan, output="json"))
    assert place.startswith("5:46: metadata.annotations")
    assert "ipvlan links have the address of the card below them" in problem


def test_a_resource_without_a_prefix_is_told(check):
    text = NET.partition("---")[0].replace("rdma/fast", "fast") % "fast"
    ((place, problem),) = warnings(check(text, output="json"))
    assert place.startswith("5:50: metadata.annotations")
    assert problem == "fast has no prefix, so no container can ask for it"


def test_what_is_wrong_comes_before_the_table(check):
    """Refusals on stderr, then warnings; with --strict, warnings are a problem for CI."""
    text = BAD.partition("---")[0] + "---\n" + POD.replace("networks:", "network:") % 2
    result = check(text)
    assert result.stderr.startswith("✗ ")
    assert "0.yaml:3:20: spec.containers: 7 is not a list. " in " ".join(result.stderr.split())
    assert result.stdout.startswith("\n! ")
    assert result.stdout.index("Did you mean") < result.stdout.index("WHAT IT IS")
    assert not re.search(r"[?!]\.", result.output)


def test_ci_can_stop_at_warnings(check, tmp_path):
    file = tmp_path / "pod.yaml"
    file.write_text(POD.replace("networks:", "network:") % 2)
    assert CliRunner().invoke(config, ["check", str(file)]).exit_code == 0
    assert CliRunner().invoke(config, ["check", str(file), "--strict"]).exit_code == 1
    file.write_text(POD % 2)
    assert CliRunner().invoke(config, ["check", str(file), "--strict"]).exit_code == 0


GROUPS = """\
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: ring}
spec:
  mpiReplicaSpecs:
    Launcher: {template: {spec: {containers: [{name: a}]}}}
    Worker:
      template:
        spec:
          hostNetwork: "true"
          containers: [{name: a}]
    Master:
      template: {spec: {containers: [{name: a, resources: {limits: {rdma/fast: 1}}}]}}
  tasks:
  - {name: eval, template: {spec: {containers: [{name: a, resources: {limits: {rdma/fast: 3}}}]}}}
"""


def test_each_kind_of_pods_of_an_object_has_its_row(check):
    result = check(GROUPS)
    assert "✗" not in result.output
    assert "Write true or false, without quotes." in " ".join(result.stdout.split())
    (shown,) = json.loads(check(GROUPS, output="json").output)["objects"]
    assert shown["meaning"] == "pods of Launcher, Worker, Master and 1 more"
    assert [(one["name"], one["meaning"]) for one in shown["templates"]] == [
        ("Worker", "not readable"),
        ("Master", "pods with rdma/fast: 1"),
        ("eval", "pods with rdma/fast: 3"),
    ]


CASES = Path(__file__).parents[2] / "data" / "cases"


def said(check, *names):
    """Each warning and refusal about files of a case: the line, the problem, the remedy."""
    files = [str(CASES / name) for name in names]
    result = CliRunner().invoke(config, ["check", *files, "-o", "json"])
    shown = json.loads(result.output)
    found = [(one, "!") for one in shown["warnings"]] + [(one, "✗") for one in shown["errors"]]
    return [
        f"{mark} {Path(one['where'].split(': ')[0]).name} {one['problem']}. {one['remedy']}"
        for one, mark in found
    ]


def test_resources_and_annotations_in_fields_of_an_operator_are_judged(check):
    """Case 25: a service of Dynamo, whose devices stand in `custom`."""
    every = said(check, "25-resources-outside-containers/graph.yaml")
    assert len(every) == 3
    assert every[0].startswith("! graph.yaml:13:40 ")
    assert '"net-rail-number-0" is not the name of an interface' in every[0]
    assert every[1].startswith("✗ graph.yaml:10:46 ")
    assert "requests 2 of rdma/ib with a limit of 4" in every[1]
    assert every[2].startswith("✗ graph.yaml:20:67 ")


def test_a_pattern_of_pods_is_no_pod(check):
    """Case 34; the quota in the same file counts nothing."""
    (quota,) = said(check, "34-kyverno-pattern/policy.yaml")
    assert quota.startswith("! policy.yaml:35:15 ")
    assert quota.endswith("Write requests.rdma/hca")


QUOTA = """\
apiVersion: v1
kind: ResourceQuota
metadata: {name: team}
spec: {hard: {%s: "8"}}
"""


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("rdma/hca", "requests.rdma/hca"),  # case 36
        ("limits.nvidia.com/gpu", "requests.nvidia.com/gpu"),
        ("requests.rdma/hca", ""),
        ("limits.memory", ""),
        ("count/deployments.apps", ""),
        ("gold.storageclass.storage.k8s.io/requests.storage", ""),
        ("rdma.deviceclass.resource.k8s.io/devices", ""),
    ],
)
def test_a_key_of_a_quota_that_counts_nothing_is_told(check, key, meant):
    said = json.loads(check(QUOTA % key, output="json").output)["warnings"]
    assert [one["remedy"] for one in said] == ([f"Write {meant}"] if meant else [])
    assert all(one["where"].endswith(f'0.yaml:4:15: spec.hard."{key}"') for one in said)


HALVES = {"range": "10.10.0.0/24", "exclude": ["10.10.0.0/25", "10.10.0.128/25"]}
SECOND_RANGE = [{"range": "10.9.0.0/24"}, {"range": "fd00::/126", "exclude": ["fd00::/125"]}]
BOUNDS = {"range": "10.10.0.0/24", "range_start": "10.10.0.10", "range_end": "10.10.0.12"}


@pytest.mark.parametrize(
    ("ipam", "all_of_it", "half"),
    [
        ({"range": "10.10.0.0/30", "exclude": ["10.10.0.0/29"]}, "0/29", "0/31"),
        (HALVES, "128/25", "128/26"),
        ({"ipRanges": SECOND_RANGE}, "fd00::/125", "fd00::/127"),
        ({**BOUNDS, "exclude": ["10.10.0.8/29"]}, "8/29", "8/31"),
    ],
)
def test_a_network_without_any_address_is_refused_as_its_pool_is(check, ipam, all_of_it, half):
    """Case 11: each ADD would be. Of several ranges each has to have addresses."""
    block = json.dumps({"type": "whereabouts", **ipam})
    text = re.sub(r'"ipam": .*}}', f'"ipam": {block}}}', NET.partition("---")[0] % "fast")
    ((where, problem),) = faults(check(text, output="json"))
    assert where.startswith("7:11: spec.config")
    assert problem.startswith("nothing is left to give")
    assert check(text.replace(all_of_it, half)).exit_code == 0


def test_a_list_of_networks_that_multus_does_not_read_is_told(check):
    """kube-rdma reads it, as a comma behind the last field is no fault in YAML."""
    pod = POD.replace('"fast, fast@net7"', """'[{"name": "fast",}]'""") % 1
    ((place, problem),) = warnings(check(pod, output="json"))
    assert place.startswith("5:46: metadata.annotations")
    assert problem.startswith("this is not JSON")
    assert "comma" in problem
    assert not warnings(check(pod.replace(",}", "}"), output="json"))


QUEUES = """\
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: all}
spec: {resourceGroups: [{coveredResources: [cpu, %s]}]}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {name: train, namespace: team}
spec: {clusterQueue: all}
---
apiVersion: batch/v1
kind: Job
metadata: {name: a, namespace: team, labels: {kueue.x-k8s.io/queue-name: %s}}
spec: {template: {spec: {containers: [{name: a, resources: {limits: {rdma/nic: 8}}}]}}}
"""


@pytest.mark.parametrize(
    ("covered", "queue", "told"),
    [("nvidia.com/gpu", "train", True), ("rdma/nic", "train", False), ("cpu", "other", False)],
)
def test_a_resource_that_a_queue_does_not_cover_is_told(check, covered, queue, told):
    found = warnings(check(QUEUES % (covered, queue), output="json"))
    assert [problem for _, problem in found] == (
        ["ClusterQueue all does not cover rdma/nic, so Kueue never admits it"] if told else []
    )


PLUGIN = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: devices, namespace: a}
data:
  config.json: |
    {"configList": [{"resourceName": "nic", "rdmaHcaMax": 8, "selectors": {"ifNames": ["e0"]}}]}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: shared-dp-ds, namespace: a}
spec:
  template:
    spec:
      nodeSelector: {zone: %s}
      containers: [{name: a, image: %s}]
      volumes: [{name: config, configMap: {name: %s}}]
---
apiVersion: kube-rdma.io/v1alpha1
kind: NodePolicy
metadata: {name: all}
spec:
  nodeSelector: {zone: left}
  pools: [{resource: rdma/nic, mode: shared}]
"""


@pytest.mark.parametrize(
    ("zone", "image", "mounted", "told"),
    [
        ("left", "ghcr.io/mellanox/k8s-rdma-shared-dev-plugin:v1.5", "devices", True),
        ("right", "ghcr.io/mellanox/k8s-rdma-shared-dev-plugin:v1.5", "devices", False),
        ("left", "ghcr.io/mellanox/k8s-rdma-shared-dev-plugin:v1.5", "others", False),
        ("left", "registry.example.com/kube-rdma:1", "devices", False),  # it reads both itself
    ],
)
def test_two_plugins_that_offer_one_resource_are_told(check, zone, image, mounted, told):
    found = warnings(check(PLUGIN % (zone, image, mounted), output="json"))
    assert [where for where, _ in found] == (["23:11: spec.pools[0]"] if told else [])
    assert all("DaemonSet shared-dp-ds" in problem for _, problem in found)


def test_pods_of_files_are_judged_on_a_machine(check, tmp_path):
    """By explain, with its own sentences; only where nothing is refused already."""
    text = NET % ("fast", "shared") + "---\n" + POD.replace("fast, fast@net7", "fast") % 9
    text = text.replace('"macvlan", "master": "ens2f0"', '"kube-rdma"')
    file = tmp_path / "all.yaml"
    file.write_text(text)
    shown = CliRunner().invoke(config, ["check", str(file), "--sysfs", "dgx-like"])
    assert shown.exit_code == 3
    said = " ".join(shown.stderr.split())
    said_of = "rdma/fast: 9 are asked for, and the node has 8 of 8 available"
    assert f"all.yaml:27: on dgx-like: {said_of}" in said
    assert CliRunner().invoke(config, ["check", str(file), "--node"]).exit_code == 2


def test_what_only_the_cards_of_a_machine_say_of_a_pod_is_said_once(tmp_path):
    """Forty mistakes 13: the files do not say which devices the pool has."""
    cards = '"selectors": {"ifNames": ["ib0"]}'
    pool = f'{{"configList": [{{"resourceName": "hca_pair", "rdmaHcaMax": 8, {cards}}}]}}'
    env = "[{name: NCCL_IB_HCA, value: mlx5_6}, {name: UCX_NET_DEVICES, value: mlx5_0}]"
    container = f"name: a, image: a, env: {env}, resources: {{limits: {{rdma/hca_pair: 1}}}}"
    spec = f"spec: {{containers: [{{{container}}}]}}"
    pod = f"{{apiVersion: v1, kind: Pod, metadata: {{name: p}}, {spec}}}"
    (tmp_path / "plugin.json").write_text(pool)
    (tmp_path / "pod.yaml").write_text(pod)
    files = [str(tmp_path / name) for name in ("plugin.json", "pod.yaml")]
    shown = CliRunner().invoke(config, ["check", *files, "--sysfs", "dgx-like"])
    assert shown.exit_code == 0
    said = " ".join(shown.stdout.split())
    assert "on dgx-like: spec.containers.0.env.0: NCCL_IB_HCA=mlx5_6 matches none of" in said
    assert said.count("UCX_NET_DEVICES=mlx5_0 has mlx5_0 without a port") == 1
