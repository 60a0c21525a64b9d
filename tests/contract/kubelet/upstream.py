"""Kubernetes' own description of its APIs, taken from its Go modules and not kept."""

import importlib.resources
import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from grpc_tools import protoc

from kube_base.errors import Refused
from kube_rdma_lab.build.go import find_go
from kube_rdma_lab.paths import cache_root

KUBELET = "k8s.io/kubelet"
CRI = "k8s.io/cri-api"


def module_folder(module):
    """The module at the version that the lab's kubelet has; skips where it cannot be had."""
    listed = (
        Path(str(importlib.resources.files("kube_rdma_lab"))) / "modules/kubernetes/go.mod"
    ).read_text()
    (version,) = set(re.findall(rf"=> {module} (v[\d.]+)", listed))
    try:
        go = find_go((1, 21))
    except Refused as refused:
        unavailable(str(refused))
    env = {**os.environ, "GOMODCACHE": str(cache_root() / "go/mod"), "GOFLAGS": "-mod=mod"}
    command = [go, "mod", "download", "-json", f"{module}@{version}"]
    result = subprocess.run(command, env=env, cwd="/", capture_output=True, text=True, check=False)
    if result.returncode:
        unavailable(f"{module} {version} cannot be downloaded: {result.stdout}{result.stderr}")
    return Path(json.loads(result.stdout)["Dir"])


def unavailable(why):
    """Skip, but never in CI, where a test that does not run would go unnoticed."""
    if os.environ.get("CI") == "true":
        pytest.fail(why)
    pytest.skip(why)


def describe(proto, out):
    """The descriptor of one .proto file, compiled into the folder `out`."""
    path = out / "set"
    args = ["protoc", f"-I{proto.parent}", f"--descriptor_set_out={path}", proto.name]
    assert protoc.main(args) == 0
    (described,) = FileDescriptorSet.FromString(path.read_bytes()).file
    return described
