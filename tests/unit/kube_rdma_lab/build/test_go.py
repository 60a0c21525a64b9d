"""Versions of everything that is compiled come from the go.mod files, and from nowhere else."""

import pytest

from kube_base.errors import Refused
from kube_rdma_lab.build import go, root
from kube_rdma_lab.release import Release

GO_MOD = """\
module example/lab

go 1.26.6

tool (
\texample.com/a/cmd/one
\texample.com/a/cmd/two
)

tool example.com/b

require example.com/c v1.0.0
require (
\texample.com/a v1.36.3 // indirect
\texample.com/b v0.0.0-20260101000000-abcdef123456
)
"""


def test_go_mod_is_read():
    """Go's version, tools in blocks and alone, versions in blocks and alone."""
    parsed = go.parse_go_mod(GO_MOD)
    assert parsed.go == (1, 26, 6)
    assert set(parsed.tools) == {"example.com/a/cmd/one", "example.com/a/cmd/two", "example.com/b"}
    assert parsed.versions["example.com/a"] == "v1.36.3"
    assert parsed.versions["example.com/c"] == "v1.0.0"
    assert parsed.versions["example.com/b"].startswith("v0.0.0-")


def test_go_mod_without_version_is_refused():
    """The compiler is chosen by that line."""
    with pytest.raises(Refused, match="go 1"):
        go.parse_go_mod("module x\n")


@pytest.mark.parametrize("release", Release)
@pytest.mark.parametrize("module", go.BINARIES)
def test_a_module_builds_the_binaries_that_are_expected_of_it(module, release):
    """The tools of the committed go.mod are the binaries that the runtime wants."""
    names = set()
    folder = release.differences.modules.get(module, module)
    for tool in go.parse_go_mod((go.MODULES / folder / "go.mod").read_text()).tools:
        parts = [part for part in tool.split("/") if not go.version_of(part) or "-" in part]
        name = go.RENAMED.get(module, {}).get(parts[-1], parts[-1])
        names.add(f"cni/{name}" if module == "cni" else name)
    assert names == set(go.BINARIES[module])


def test_coredns_brings_no_sdk_of_a_cloud():
    """Its usual main would: go.sum names every module that the build could read."""
    module = go.MODULES / "coredns"
    text = (module / "go.sum").read_text().lower()
    assert "github.com/coredns/coredns " in text
    assert not [word for word in ("aws", "azure", "cloud.google.com") if word in text]


def test_kubernetes_is_stamped_with_its_version():
    """Without stamps the binaries call themselves v0.0.0-master."""
    flags = go.linker_flags("kubernetes", {"k8s.io/kubernetes": "v1.36.3"})
    assert "version.gitVersion=v1.36.3" in flags
    assert "version.gitMajor=1 " in flags
    assert "version.gitMinor=36 " in flags
    assert go.linker_flags("etcd", {}) == "-s -w"


@pytest.mark.parametrize(
    ("module", "stamp"),
    [
        ("github.com/containerd/containerd/v2", "containerd/v2/version.Version=v9"),
        ("github.com/containerd/containerd", "containerd/version.Version=v9"),
    ],
)
def test_containerd_is_stamped_by_the_path_that_its_module_has(module, stamp):
    """Before 2.0 the path had no major version; a stamp of another path is lost in silence."""
    versions = {"github.com/containerd/containerd/api": "v1.8.0", module: "v9"}
    assert f"-X github.com/containerd/{stamp}" in go.linker_flags("containerd", versions)


@pytest.mark.parametrize(
    ("text", "numbers"), [("go1.26.8", (1, 26, 8)), ("v1.36.3", (1, 36, 3)), ("devel", ())]
)
def test_versions_compare_as_numbers(text, numbers):
    """A version is its numbers, whatever stands around them."""
    assert go.version_of(text) == numbers


def give(folder, names):
    """A folder with these binaries, all of them empty."""
    for name in names:
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.touch(0o755)


def test_ready_made_binaries_must_be_complete(tmp_path):
    """A folder that lacks something is refused with the list of what it lacks."""
    give(tmp_path, go.ALL[1:])
    with pytest.raises(Refused, match=f"it lacks {go.ALL[0]}\\."):
        go.ready_made(tmp_path)
    give(tmp_path, go.ALL)
    assert go.ready_made(tmp_path).folder == tmp_path


def test_what_no_node_runs_makes_no_new_disks(tmp_path):
    """Another CoreDNS changes no key of a node's disks; another kubelet does."""
    give(tmp_path, go.ALL)

    def inputs():
        return go.ready_made(tmp_path).inputs(*root.NODE_BINARIES, *go.BINARIES["cni"])

    before = inputs()
    (tmp_path / "coredns").write_text("newer")
    assert inputs() == before
    (tmp_path / "kubelet").write_text("newer")
    assert inputs() != before
