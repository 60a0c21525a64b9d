"""The linters, run as tests, so that one command and one closing line tell whether all is well.

For each there is a planted fault below: a linter that finds nothing may also be switched off.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .tree import ROOT, is_shell, texts

BIN = Path(sys.executable).parent
CONTRACTS = 12

LINTERS = {
    "style": ["ruff", "check"],
    "format": ["ruff", "format", "--check"],
    "imports": ["lint-imports", "--no-logo"],
    "types": ["mypy"],
    "workflows": ["zizmor", "--quiet", "--offline", "--persona=auditor", ".github"],
}


def run(*command: str, stdin: str = "", cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run a tool of .venv with its colours and banners off."""
    env = {"PATH": "/usr/bin:/bin", "NO_COLOR": "1", "COLUMNS": "200"}
    argv = [str(BIN / command[0]), *command[1:]]
    return subprocess.run(
        argv, input=stdin, cwd=cwd, env=env, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("name", LINTERS)
def test_linter(name: str) -> None:
    """The tree passes."""
    result = run(*LINTERS[name])
    if result.returncode:
        pytest.fail(f"{' '.join(LINTERS[name])}\n{result.stdout}{result.stderr}", pytrace=False)


def test_shell_scripts_parse() -> None:
    """Every shell script is at least shell."""
    scripts = [name for name, text in texts() if is_shell(name, text)]
    assert "tools/bootstrap" in scripts
    for name in scripts:
        subprocess.run(["bash", "-n", name], cwd=ROOT, check=True)


@pytest.mark.parametrize(
    ("code", "rule"),
    [
        ("def f(a, b, c, d, e, f, g, h, i):\n    return a\n", "PLR0913"),
        ("def f(x):\n" + "    if x: print(1)\n" * 15, "C901"),
        ("def f():\n    return 1\n", "D103"),
        ("try:\n    f()\nexcept Exception:\n    pass\n", "BLE001"),
    ],
)
def test_style_finds(code: str, rule: str) -> None:
    """Too many parameters, too many branches, no docstring, a catch of everything."""
    command = ["ruff", "check", "--no-cache", "--stdin-filename", "src/kube_rdma/lib/x.py", "-"]
    assert rule in run(*command, stdin=code).stdout


def test_format_finds_a_file_that_is_not_formatted() -> None:
    """Two statements in a line are not our format."""
    command = ["ruff", "format", "--check", "--stdin-filename", "src/kube_rdma/lib/x.py", "-"]
    assert run(*command, stdin="x = 1; y = 2\n").returncode


def test_types_finds_a_function_without_types(tmp_path: Path) -> None:
    """The strict mode of mypy is on."""
    (tmp_path / "x.py").write_text("def f(x): return x\n", encoding="utf-8")
    assert "no-untyped-def" in run("mypy", str(tmp_path / "x.py")).stdout


@pytest.mark.parametrize(
    ("right", "planted"),
    [
        ("permissions: {}", "permissions: write-all"),
        ("      contents: read", "      contents: write"),
        ("persist-credentials: false", "persist-credentials: true"),
        ("run: make check", "run: make ${{ github.head_ref }}"),
        ("actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1", "actions/checkout@v7"),
    ],
)
def test_workflows_finds(right: str, planted: str, tmp_path: Path) -> None:
    """Rights that nobody explains, a token that stays, a foreign text in a shell, a tag."""
    text = (ROOT / ".github/workflows/check.yml").read_text(encoding="utf-8")
    assert right in text
    (tmp_path / "check.yml").write_text(text.replace(right, planted), encoding="utf-8")
    assert run(*LINTERS["workflows"][:-1], str(tmp_path / "check.yml")).returncode


PLANTED = {
    "kube_rdma/model/clock.py": "import time\n",
    "kube_rdma/pools/reaches.py": "import kube_rdma.attach\n",
    "kube_rdma/pools/rules/decoded.py": "import kube_rdma.pools.documents\n",
    "kube_rdma/hardware/views/decides.py": "import kube_rdma.pools.rules\n",
    "kube_rdma/attach/documents/decides.py": "import kube_rdma.attach.rules\n",
    "kube_rdma/adapters/kernel/friend.py": "import kube_rdma.adapters.kubelet\n",
    "kube_rdma/controller/reaches.py": "import kube_rdma.agent\n",
    "kube_base/leans.py": "import kube_rdma_lab\n",
    "kube_rdma/adapters/metrics/talks.py": "import wsproto\n",
    "kube_rdma/lib/asks.py": "import h11\n",
    "kube_rdma/lib/signs.py": "import cryptography\n",
    "kube_rdma/lib/draws.py": "import rich\n",
}


def test_imports_finds_a_breach_of_every_contract(tmp_path: Path) -> None:
    """A copy of the source with one bad import for each contract breaks all of them."""
    shutil.copytree(ROOT / "src", tmp_path / "src")
    for name, text in PLANTED.items():
        (tmp_path / "src" / name).write_text(f'"""Planted."""\n{text}', encoding="utf-8")
    # The contracts come from pyproject.toml, the packages from the copy.
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'src')!r});"
        "from importlinter.cli import lint_imports_command as c; c(['--no-logo', '--no-cache'])"
    )
    result = run("python", "-c", code)
    assert result.returncode
    assert f"Contracts: 0 kept, {CONTRACTS} broken." in result.stdout, result.stdout
