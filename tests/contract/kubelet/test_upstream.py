"""Our .proto files are the wires of Kubernetes, and the committed code is what they make."""

import subprocess
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from kube_rdma.adapters.kubelet.proto import (
    deviceplugin_v1beta1_pb2,
    dra_health_v1_pb2,
    dra_health_v1alpha1_pb2,
    dra_v1_pb2,
    pluginregistration_v1_pb2,
    podresources_v1_pb2,
)
from kube_rdma.adapters.runtime.proto import cri_v1_pb2

from .upstream import CRI, KUBELET, describe, module_folder

ROOT = Path(__file__).parents[3]


def messages(described, prefix=""):
    """Everything of each message that is seen on the wire, nested ones (maps) included."""
    found = {}
    for message in described:
        name = f"{prefix}{message.name}"
        found[name] = {f.number: (f.name, f.type, f.label, f.type_name) for f in message.field}
        found |= messages(message.nested_type, f"{name}.")
    return found


def methods(described):
    return {
        f"{service.name}/{m.name}": (
            m.input_type,
            m.output_type,
            m.client_streaming,
            m.server_streaming,
        )
        for service in described.service
        for m in service.method
    }


PAIRS = {  # our file: the module that has it, its path there
    deviceplugin_v1beta1_pb2: (KUBELET, "pkg/apis/deviceplugin/v1beta1/api.proto"),
    pluginregistration_v1_pb2: (KUBELET, "pkg/apis/pluginregistration/v1/api.proto"),
    dra_v1_pb2: (KUBELET, "pkg/apis/dra/v1/api.proto"),
    dra_health_v1alpha1_pb2: (KUBELET, "pkg/apis/dra-health/v1alpha1/api.proto"),
    podresources_v1_pb2: (KUBELET, "pkg/apis/podresources/v1/api.proto"),
    cri_v1_pb2: (CRI, "pkg/apis/runtime/v1/api.proto"),
}
WHOLE = (
    deviceplugin_v1beta1_pb2,
    dra_v1_pb2,
    dra_health_v1alpha1_pb2,
    pluginregistration_v1_pb2,
)  # with every field and call


@pytest.fixture(scope="module", params=PAIRS, ids=lambda pb: pb.__name__.rpartition(".")[2])
def ours(request):
    return request.param


@pytest.fixture(scope="module")
def theirs(ours, tmp_path_factory):
    module, path = PAIRS[ours]
    return describe(module_folder(module) / path, tmp_path_factory.mktemp("proto"))


def described(pb):
    found = FileDescriptorProto()
    pb.DESCRIPTOR.CopyToProto(found)
    return found


def test_our_wire_is_upstreams(ours, theirs):
    """Every field is one that upstream has; where we want the whole API, none is missing."""
    mine = described(ours)
    assert mine.package == theirs.package
    known = messages(theirs.message_type)
    for name, fields in messages(mine.message_type).items():
        if ours in WHOLE:
            assert fields == known[name], name
        else:
            assert fields.items() <= known[name].items(), name


def test_our_services_are_upstreams(ours, theirs):
    mine, known = methods(described(ours)), methods(theirs)
    assert mine.items() <= known.items()
    if ours in WHOLE:
        assert mine == known


def test_the_health_of_devices_in_v1_is_v1alpha1_under_another_name():
    """The lab's kubelet is of 1.36, which has no v1; kubelet/pkg/apis/dra-health of 1.37 has."""
    newer, older = described(dra_health_v1_pb2), described(dra_health_v1alpha1_pb2)
    assert (newer.package, older.package) == ("v1", "v1alpha1")
    text = str(newer).replace(".v1.", ".v1alpha1.").replace('"v1"', '"v1alpha1"')
    assert text.replace("health_v1.", "health_v1alpha1.") == str(older)


def test_a_difference_would_be_seen(ours, theirs):
    """A field with another number is another field."""
    mine = described(ours)
    message = next(m for m in mine.message_type if m.field)
    message.field[0].number += 70
    fields = messages(mine.message_type)[message.name]
    assert not fields.items() <= messages(theirs.message_type)[message.name].items()


def test_the_committed_code_is_what_tools_protos_writes(tmp_path):
    subprocess.run([ROOT / "tools/protos", tmp_path], check=True)
    made = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*.py*"))
    kept = (p.relative_to(ROOT / "src") for p in (ROOT / "src").rglob("*") if p.is_file())
    kept = sorted(p for p in kept if p.name.endswith(("_pb2.py", "_pb2.pyi", "_grpc.py")))
    assert made == kept
    for path in made:
        assert (tmp_path / path).read_text() == (ROOT / "src" / path).read_text(), path
