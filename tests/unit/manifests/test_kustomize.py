"""The base for kustomize: all of preset default, under an image that whoever installs names."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from kube_rdma.install.installation import objects
from kube_rdma.lib.text import reader

BASE = Path(__file__).parents[3] / "config"
IMAGE = "registry.example.com/rdma/kube-rdma"
OVERLAY = f"""\
resources: [config]
images:
- {{name: kube-rdma.invalid/kube-rdma, newName: {IMAGE}, newTag: dev}}
"""
FILES = yaml.safe_load((BASE / "kustomization.yaml").read_text())["resources"]


def named(listed):
    return {(one["kind"], one["metadata"]["name"]): one for one in listed}


def of_preset():
    values = json.dumps({"image": {"repository": IMAGE}}).encode()
    return named(objects([reader.read(values, "values")], "default"))


def test_the_base_has_every_object_once():
    """Definitions are those of config/crds."""
    read = [one for name in FILES for one in yaml.safe_load_all((BASE / name).read_text())]
    assert len(read) == len(of_preset())
    assert named(read).keys() == of_preset().keys()


@pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl has kustomize in it")
def test_with_an_image_it_is_what_render_prints(tmp_path):
    shutil.copytree(BASE, tmp_path / "config")
    (tmp_path / "kustomization.yaml").write_text(OVERLAY)
    done = subprocess.run(
        ["kubectl", "kustomize", tmp_path], capture_output=True, text=True, check=True
    )
    made = named(yaml.safe_load_all(done.stdout))
    wanted = of_preset()
    assert made.keys() == wanted.keys()
    assert [
        name for name in wanted if not name[0].startswith("CustomR") and made[name] != wanted[name]
    ] == []
