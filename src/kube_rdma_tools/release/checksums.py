"""SHA256SUMS: what `sha256sum --check` reads, over every other file of a release."""

from __future__ import annotations

import hashlib
from pathlib import Path

NAME = "SHA256SUMS"


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_checksums(folder: Path) -> dict[str, str]:
    """Write the SHA-256 of each file of a folder into a file beside them; return all by name."""
    digests = {path.name: sha256(path) for path in sorted(folder.iterdir()) if path.name != NAME}
    lines = (f"{digest}  {name}\n" for name, digest in digests.items())
    (folder / NAME).write_text("".join(lines))
    return digests
