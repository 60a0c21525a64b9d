"""The plugin of kubectl: krew takes its manifest, and its archive has the libraries that it loads.

What krew asks of a manifest is in its internal/index/validation/validate.go.
"""

import re

import pytest
import yaml

from kube_rdma_lab.build import product
from kube_rdma_tools.release.plugin import COMPLETION, PROGRAM, manifest, needed, plugin_files
from tests.unit.kube_rdma_tools.release.values import COMPONENTS, IDENTITY

DIGESTS = {"amd64": ("a.tar.gz", "a" * 64), "arm64": ("b.tar.gz", "b" * 64)}
SEMANTIC = re.compile(r"v\d+\.\d+\.\d+(-[0-9A-Za-z.]+)?")


def test_krew_takes_the_manifest():
    text = manifest(IDENTITY, DIGESTS)
    document = yaml.safe_load(text)
    assert document["apiVersion"] == "krew.googlecontainertools.github.com/v1alpha2"
    assert document["kind"] == "Plugin"
    assert re.fullmatch(r"[\w-]+", document["metadata"]["name"])
    spec = document["spec"]
    assert SEMANTIC.fullmatch(spec["version"])
    assert spec["shortDescription"]
    assert "\n" not in spec["shortDescription"]
    assert spec["homepage"] == IDENTITY.homepage
    for platform, (name, digest) in zip(spec["platforms"], DIGESTS.values(), strict=True):
        assert platform["selector"]["matchLabels"].keys() == {"os", "arch"}
        assert platform["uri"] == f"https://files.example.com/v0.2.0-rc.1/{name}"
        assert platform["sha256"] == digest
        assert platform["bin"] == PROGRAM


def elf(*names):
    """A program that loads libraries of these names."""
    return b"\x7fELF\0" + b"".join(b"\0" + name.encode() for name in names) + b"\0"


@pytest.fixture
def root(tmp_path):
    """An image whose Python loads libz, which loads libc; nothing loads libx."""
    libraries = {"libz.so.1.2": elf("libc.so.6"), "libc.so.6": elf(), "libx.so.1": elf()}
    for name, data in {**libraries, "ld-linux-x86-64.so.2": elf()}.items():
        path = tmp_path / "usr/lib/x86_64-linux-gnu" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (path.parent / "libz.so.1").symlink_to("libz.so.1.2")
    library = tmp_path / f"usr/lib/python{product.PYTHON}"
    for path, data in (
        (tmp_path / f"usr/bin/python{product.PYTHON}", elf("libz.so.1")),
        (library / "os.py", b""),
        (tmp_path / product.SITE / "kube_rdma/__init__.py", b""),
        (tmp_path / "usr/share/common-licenses/GPL-3", b""),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (library / "sitecustomize.py").symlink_to("/etc/python/sitecustomize.py")
    return tmp_path


def test_the_archive_has_python_the_packages_and_what_they_load(root):
    files = plugin_files(root, "amd64", COMPONENTS)
    assert {name for name in files if name.startswith("lib/")} == {
        "lib/ld-linux-x86-64.so.2",
        "lib/libc.so.6",
        "lib/libz.so.1",
    }
    assert files["lib/libz.so.1"].data == elf("libc.so.6")
    assert "site/kube_rdma/__init__.py" in files
    assert f"python/lib/python{product.PYTHON}/os.py" in files
    assert not [name for name in files if "sitecustomize" in name]
    assert files[PROGRAM].runs
    assert files[COMPLETION].runs
    for name, module in ((PROGRAM, "main"), (COMPLETION, "completion")):
        assert f'"$here/{name}.py"'.encode() in files[name].data
        assert f"from kube_rdma.cli.{module} import ".encode() in files[f"{name}.py"].data
    assert "licences/deb/libc6/copyright" in files


def test_libraries_are_taken_once_also_where_they_name_each_other(tmp_path):
    for name, data in (("liba.so", elf("libb.so")), ("libb.so", elf("liba.so"))):
        (tmp_path / name).write_bytes(data)
    libraries = {path.name: path for path in tmp_path.iterdir()}
    assert needed([elf("liba.so")], libraries) == ("liba.so", "libb.so")
    assert needed([elf()], libraries) == ()
