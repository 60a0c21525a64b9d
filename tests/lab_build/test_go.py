"""Versions of everything that is compiled come from the go.mod files, and from nowhere else."""

import pytest

from kube_rdma.model.errors import Refused
from kube_rdma_lab.build import go

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


def test_our_own_modules_build_every_binary():
    """The tools of the committed modules are the binaries that the runtime wants."""
    names = set()
    for module in go.NAMES:
        for tool in go.parse_go_mod((go.MODULES / module / "go.mod").read_text()).tools:
            parts = [part for part in tool.split("/") if not go.version_of(part) or "-" in part]
            name = go.RENAMED.get(module, {}).get(parts[-1], parts[-1])
            names.add(f"cni/{name}" if module == "cni" else name)
    assert names == set(go.BINARIES)


def test_kubernetes_is_stamped_with_its_version():
    """Without stamps the binaries call themselves v0.0.0-master."""
    flags = go.linker_flags("kubernetes", {"k8s.io/kubernetes": "v1.36.3"})
    assert "version.gitVersion=v1.36.3" in flags
    assert "version.gitMajor=1 " in flags
    assert "version.gitMinor=36 " in flags
    assert go.linker_flags("etcd", {}) == "-s -w"


@pytest.mark.parametrize(
    ("text", "numbers"), [("go1.26.8", (1, 26, 8)), ("v1.36.3", (1, 36, 3)), ("devel", ())]
)
def test_versions_compare_as_numbers(text, numbers):
    """A version is its numbers, whatever stands around them."""
    assert go.version_of(text) == numbers


def test_ready_made_binaries_must_be_complete(tmp_path):
    """A folder that lacks something is refused with the list of what it lacks."""
    for name in go.BINARIES[1:]:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch(0o755)
    with pytest.raises(Refused, match=f"it lacks {go.BINARIES[0]}\\."):
        go.ready_made(tmp_path)
    (tmp_path / go.BINARIES[0]).touch(0o755)
    assert go.ready_made(tmp_path) == tmp_path
