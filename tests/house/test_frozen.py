"""Formats that others read: an upgrade, kubectl, the runtime, the kubelet.

tests/data/frozen.sha256 has the hash of each file that shows one, as `sha256sum` prints it. Who
changes a format changes its line there too, and says in CHANGELOG.md what users have to do.
"""

import hashlib
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
FROZEN = ROOT / "tests/data/frozen.sha256"
SHOWN = (
    "*/adapters/journal/data/*",
    "*/data/journal/*",
    "*/data/cdi.json",
    "*.proto",
    "config/crds/*",
)


def shown():
    listed = subprocess.run(
        ["git", "ls-files", *SHOWN], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for path in listed.stdout.splitlines():
        yield f"{hashlib.sha256((ROOT / path).read_bytes()).hexdigest()}  {path}"


def test_formats_are_what_they_were():
    found = sorted(shown(), key=lambda line: line.split()[1])
    assert FROZEN.read_text().splitlines() == found, "a format changed: put its sha256sum there"
