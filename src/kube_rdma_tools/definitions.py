"""Writes the custom resource definitions and the reference pages, one file each.

`python -m kube_rdma_tools.definitions ROOT` writes below config and docs/reference; tools/crds
calls it for the checkout, and a test compares.
"""

from __future__ import annotations

import sys
from pathlib import Path

from kube_rdma.claims.parameters import ClaimParametersObject
from kube_rdma.cli.definitions import DEFINITIONS, OPERATOR_DEFINITIONS
from kube_rdma.lib.schema import definition, structural, text
from kube_rdma_tools.kind_pages import page, parameters_page

HEAD = "# Written by tools/crds from the models in src/kube_rdma; do not edit.\n"


def files() -> dict[str, str]:
    """Return the texts of CRDs, their reference pages and that of ClaimParameters, by file name."""
    folders = {"config/crds": DEFINITIONS, "config/operator": OPERATOR_DEFINITIONS}
    definitions = {
        f"{folder}/{each.plural}.yaml": HEAD + text(each)
        for folder, kinds in folders.items()
        for each in kinds
    }
    every = (*DEFINITIONS, *OPERATOR_DEFINITIONS)
    pages = {f"docs/reference/{each.kind.lower()}.md": page(definition(each)) for each in every}
    parameters = parameters_page(structural(ClaimParametersObject))
    return definitions | pages | {"docs/reference/claimparameters.md": parameters}


if __name__ == "__main__":
    for name, content in files().items():
        Path(sys.argv[1], name).write_text(content, encoding="utf-8")
