"""Writes the custom resource definitions, one file each: `python -m kube_rdma.programs.crds DIR`.

tools/crds calls it for config/crds; a test compares.
"""

from __future__ import annotations

import sys
from pathlib import Path

from kube_rdma.api.definitions import DEFINITIONS
from kube_rdma.api.structural import text

HEAD = "# Written by tools/crds from the models in src/kube_rdma/api; do not edit.\n"


def files() -> dict[str, str]:
    """What each file holds, by its name."""
    return {f"{each.plural}.yaml": HEAD + text(each) for each in DEFINITIONS}


if __name__ == "__main__":
    for name, content in files().items():
        Path(sys.argv[1], name).write_text(content, encoding="utf-8")
