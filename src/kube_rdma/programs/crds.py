"""Writes the custom resource definitions, one file each: `python -m kube_rdma.programs.crds DIR`.

tools/crds calls it for config; a test compares.
"""

from __future__ import annotations

import sys
from pathlib import Path

from kube_rdma.api.definitions import DEFINITIONS, OPERATOR_DEFINITIONS
from kube_rdma.api.structural import text

HEAD = "# Written by tools/crds from the models in src/kube_rdma/api; do not edit.\n"


def files() -> dict[str, str]:
    """What each file holds, by its name below config."""
    folders = {"crds": DEFINITIONS, "operator": OPERATOR_DEFINITIONS}
    return {
        f"{folder}/{each.plural}.yaml": HEAD + text(each)
        for folder, definitions in folders.items()
        for each in definitions
    }


if __name__ == "__main__":
    for name, content in files().items():
        Path(sys.argv[1], name).write_text(content, encoding="utf-8")
