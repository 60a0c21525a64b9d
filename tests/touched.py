"""`make touched`: checks what differs from a commit, in at most a minute of one processor.

Style and types of the changed files, the tests in their folders, and the house rules that are
quick. Files that use a changed one, and tests elsewhere, are for `make check`.

    python -m tests.touched [COMMIT]    # HEAD; files that git does not know yet count, too
"""

import re
import subprocess
import sys
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
TYPED = ("src/", "bench/", "chaos/")
# Types and imports of all files; the flows of whole programs, with a profiler.
SLOW_RULES = {"test_linters.py", "test_flows.py"}
PAGES = "tests/documents/test_pages.py"
COMMANDS = "tests/documents/test_shell.py::test_the_commands_of_a_page_run_as_written"
# What tools write of the installation, definitions and metrics, and what they write it from.
WRITTEN = (
    "tests/unit/kube_rdma_tools/test_definitions.py",
    "tests/unit/kube_rdma_tools/test_metrics.py",
    "tests/unit/manifests/test_installation.py",
)
SOURCES = re.compile("(charts|config)/|src/kube_rdma/(install|metrics|model|.*documents)/")
# What reads every example machine, and what people posted of theirs.
TREES = (
    "tests/unit/adapters/kernel/sysfs/test_trees.py",
    "tests/unit/doctor/test_healthy_machines.py",
    "tests/unit/doctor/test_posted_layouts.py",
    "tests/unit/hardware/test_machines.py",
    "tests/unit/hardware/test_mutated_machines.py",
)


def changed(commit):
    """Files that differ from a commit and are still there."""
    lists = (
        ("diff", "--name-only", "--diff-filter=d", commit),
        ("ls-files", "--others", "--exclude-standard"),
    )
    outputs = (
        subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True)
        for words in lists
    )
    return sorted({name for done in outputs for name in done.stdout.splitlines()})


def beside(files):
    """The test files of the changed ones: of a module those of its folder, of a page its rules."""
    folders, chosen = set(), set()
    for name in files:
        path = PurePosixPath(name)
        if SOURCES.match(name):
            chosen.update(WRITTEN)
        if name.startswith(("tests/data/trees/", "src/kube_rdma/doctor/rules/")):
            chosen.update(TREES)
        if path.parts[0] == "tests" and path.match("test_*.py"):
            chosen.add(name)
        elif path.suffix == ".md":
            chosen.add(PAGES)
            if "<!-- run: here -->" in (ROOT / name).read_text(encoding="utf-8"):
                chosen.add(f"{COMMANDS}[{name}]")
        elif path.parts[0] in ("bench", "chaos"):
            folders.add(f"tests/unit/{path.parts[0]}")
        elif path.parts[0] == "src":
            inner = path.parent.relative_to("src")
            place = Path("tests/unit", str(inner).removeprefix("kube_rdma/"))
            folders.add(next(one for one in (place, *place.parents) if (ROOT / one).is_dir()))
        elif path.parts[:2] == ("tests", "unit"):
            folders.add(str(path.parent))
    found = (path for folder in folders for path in (ROOT / folder).glob("test_*.py"))
    return sorted(chosen | {str(path.relative_to(ROOT)) for path in found})


def commands(files):
    """What is run, in order."""
    python = [name for name in files if name.endswith(".py")]
    if python:
        yield ["ruff", "check", "--force-exclude", *python]
        yield ["ruff", "format", "--check", "--force-exclude", *python]
    if typed := [name for name in python if name.startswith(TYPED)]:
        yield ["mypy", *typed]
    rules = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests/house").glob("test_*.py"))
    tests = [*(name for name in rules if Path(name).name not in SLOW_RULES), *beside(files)]
    options = ["-q", "--hypothesis-profile=quick", "-m", "not slow and not lab"]
    yield ["python", "-m", "pytest", *options, *dict.fromkeys(tests)]


def main():
    """Run them in order, up to the first that fails: style is cheap, and tests would hide it."""
    for program, *words in commands(changed(*sys.argv[1:] or ["HEAD"])):
        if subprocess.run([BIN / program, *words], cwd=ROOT, check=False).returncode:
            sys.exit(f"make touched stops here: {program} found what is above")


if __name__ == "__main__":
    main()
