"""Packages beside kube_rdma that do the work of a command: self-test, move from whereabouts.

They are found by the name of their module: the node image has no list of what is installed.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def beside(module: str, what: str, where: str) -> Any:
    """Import and return a module of another package; raise Refused if it is not installed."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name not in (module, module.partition(".")[0]):
            raise
        from kube_base.errors import Refused

        raise Refused(
            f"this installation of kube-rdma has no {what}",
            remedy="Run it from the image or the wheel of a release",
            where=where,
        ) from None
