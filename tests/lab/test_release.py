"""`make release`: two builds of a commit are equal, and every way to the command runs.

Each build has a clone, a folder and a cache of its own, so nothing is shared but downloads.
No container engine is needed: the image's files are run as containers run them, behind a chroot.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import yaml

from kube_rdma_lab.build import wheels
from kube_rdma_lab.paths import cache_root
from kube_rdma_tools.release import archives, contents
from tests.kit import helm, registry

pytestmark = [pytest.mark.lab, pytest.mark.slow]

CHECKOUT = Path(__file__).parents[2]
IMAGE = "registry.example.com/rdma/kube-rdma"
CHOSEN = ("--set", f"image.repository={IMAGE}")  # the release itself names none
RENDER = ("render", "--preset", "scc", *CHOSEN)


# Of this process, without what would bring a checkout's packages into a wheel's environment.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def run(*words, env=ENVIRONMENT, cwd=None):
    """What a program prints; the test fails with all that it printed where it does."""
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=env, cwd=cwd)
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def build(folder):
    """A release of the last commit, from a clone and a cache of its own."""
    folder.mkdir()
    run("git", "clone", "--quiet", CHECKOUT, folder / "clone")
    cache = folder / "cache"
    cache.mkdir()
    for name in ("uv", "uv-cache"):
        (cache / name).symlink_to(cache_root() / name)
    source = folder / "clone/src"
    environment = {**ENVIRONMENT, "KUBE_RDMA_CACHE": str(cache), "PYTHONPATH": str(source)}
    words = ("-m", "kube_rdma_tools.release", folder / "dist")
    run(sys.executable, *words, cwd=folder / "clone", env=environment)
    (written,) = (folder / "dist").iterdir()
    return written


@pytest.fixture(scope="module")
def place():
    """A folder on the disk of the cache: each build takes a gigabyte, too much for memory."""
    with tempfile.TemporaryDirectory(prefix="release-test-", dir=cache_root()) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def first(place):
    """The files of a release."""
    return build(place / "first")


@pytest.fixture(scope="module")
def version(first):
    """The version as Helm, krew and tags have it; the folder's name."""
    return first.name


@pytest.fixture(scope="module")
def python_version(first):
    """The version as Python has it."""
    (wheel,) = first.glob("*.whl")
    return wheel.name.split("-")[1]


@pytest.fixture(scope="module")
def root(first, version, place):
    """The files of the image for this machine."""
    folder = place / "root"
    contents.unpack(first / f"kube-rdma-image-{version}-linux-amd64.tar", folder)
    return folder


def container(root, *arguments):
    """What the image's entry point prints, as `docker run IMAGE ARGUMENTS` would start it."""
    words = ("unshare", "--mount", "--pid", "--net", "--fork", "chroot", root, "kube-rdma")
    return run(*words, *arguments, env={"PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"})


def images(rendered):
    """The images that workloads among rendered objects name."""
    pods = [
        one["spec"]["template"]["spec"]
        for one in yaml.safe_load_all(rendered)
        if one and one["kind"] in {"DaemonSet", "Deployment"}
    ]
    return {container["image"] for pod in pods for container in pod["containers"]}


def test_two_builds_of_a_commit_are_equal(first, place):
    second = build(place / "second")
    sums = (first / "SHA256SUMS").read_text()
    assert (second / "SHA256SUMS").read_text() == sums
    run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=second)
    assert len(sums.splitlines()) == len(list(first.iterdir())) - 1


def test_the_image_says_the_version_and_renders_with_its_own_name(root, version, python_version):
    assert container(root, "--version").split() == ["kube-rdma", python_version]
    assert images(container(root, *RENDER)) == {f"{IMAGE}:{version}"}


def test_every_image_lists_its_parts(first, version):
    for architecture in ("amd64", "arm64"):
        name = f"kube-rdma-image-{version}-linux-{architecture}.cdx.json"
        document = json.loads((first / name).read_text())
        assert document["metadata"]["component"]["version"] == version
        kinds = {one["purl"].partition("/")[0] for one in document["components"]}
        assert kinds == {"pkg:deb", "pkg:pypi"}


def test_the_wheel_brings_the_command_by_pip(first, python_version, tmp_path):
    (wheel,) = first.glob("*.whl")
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    run(tmp_path / "venv/bin/pip", "install", "--quiet", wheel)
    for name in ("kube-rdma", "kubectl-rdma"):
        printed = run(tmp_path / "venv/bin" / name, "--version")
        assert printed.split() == [name, python_version]
    assert "kind: DaemonSet" in run(tmp_path / "venv/bin/kube-rdma", *RENDER)


def test_the_wheel_brings_the_command_by_uvx(first, python_version, tmp_path):
    (wheel,) = first.glob("*.whl")
    environment = {**ENVIRONMENT, **wheels.uv_settings(), "UV_CACHE_DIR": str(tmp_path)}
    words = (wheels.find_uv(), "tool", "run", "--from", wheel, "kube-rdma", "--version")
    assert run(*words, env=environment).split() == ["kube-rdma", python_version]


def test_kubectl_starts_the_plugin_through_krews_link(first, version, python_version, tmp_path):
    """With no Python and no library of this machine; krew links to the program."""
    (tmp_path / "store").mkdir()
    packed = first / f"kubectl-rdma-{version}-linux-amd64.tar.gz"
    archives.unpack(packed.read_bytes(), tmp_path / "store")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/kubectl-rdma").symlink_to("../store/kubectl-rdma")
    environment = {"PATH": "/usr/bin:/bin", "PYTHONHOME": "/nowhere", "HOME": str(tmp_path)}
    printed = run(tmp_path / "bin/kubectl-rdma", "--version", env=environment)
    assert printed.split() == ["kubectl-rdma", python_version]
    rendered = run(tmp_path / "bin/kubectl-rdma", *RENDER, env=environment)
    assert images(rendered) == {f"{IMAGE}:{version}"}
    (tmp_path / "bin/kubectl_complete-rdma").symlink_to("../store/kubectl_complete-rdma")
    words = ("render", "--preset", "rails")
    offered = run(tmp_path / "bin/kubectl_complete-rdma", *words, env=environment)
    assert offered.split() == ["rails", ":4"]


def test_helm_takes_the_chart_from_a_file_and_from_a_registry(first, version, tmp_path):
    package = first / f"kube-rdma-{version}.tgz"
    artefact = first / f"kube-rdma-chart-{version}.tar"
    with helm.built(helm.NEWEST) as programs:
        program = programs[helm.NEWEST]
        done = helm.run(program, tmp_path, "template", "x", package, "--set", "preset=scc", *CHOSEN)
        assert images(done.stdout) == {f"{IMAGE}:{version}"}, done.stderr
        with registry.serve("charts/kube-rdma", artefact) as address:
            name = f"oci://{address}/charts/kube-rdma"
            words = ("pull", name, "--version", version, "--plain-http", "-d", tmp_path)
            done = helm.run(program, tmp_path, *words)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / package.name).read_bytes() == package.read_bytes()
