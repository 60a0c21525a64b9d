"""Our .proto is the wire of Kubernetes, and the committed code is what our .proto makes."""

import subprocess
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from kube_rdma.adapters.kubelet.proto import deviceplugin_v1beta1_pb2 as pb

from .upstream import API, describe, module_folder

ROOT = Path(__file__).parents[2]


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


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    return describe(module_folder() / API, tmp_path_factory.mktemp("proto"))


@pytest.fixture
def ours():
    described = FileDescriptorProto()
    pb.DESCRIPTOR.CopyToProto(described)
    return described


def test_our_wire_is_upstreams(ours, theirs):
    """Every message has the very fields that upstream has: none is misnumbered, none is missing."""
    assert ours.package == theirs.package
    known = messages(theirs.message_type)
    used = messages(ours.message_type)
    assert used == {name: known.get(name) for name in used}


def test_our_services_are_upstreams(ours, theirs):
    assert methods(ours) == methods(theirs)


def test_a_difference_would_be_seen(ours, theirs):
    """A field with another number is another message."""
    device = next(m for m in ours.message_type if m.name == "Device")
    device.field[0].number = 7
    assert messages(ours.message_type)["Device"] != messages(theirs.message_type)["Device"]


def test_the_committed_code_is_what_tools_protos_writes(tmp_path):
    subprocess.run([ROOT / "tools/protos", tmp_path], check=True)
    made = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*.py*"))
    kept = (p.relative_to(ROOT / "src") for p in (ROOT / "src").rglob("*") if p.is_file())
    kept = sorted(p for p in kept if p.name.endswith(("_pb2.py", "_pb2.pyi", "_grpc.py")))
    assert made == kept
    for path in made:
        assert (tmp_path / path).read_text() == (ROOT / "src" / path).read_text(), path
