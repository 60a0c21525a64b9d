"""The option --sysfs: another node in place of this one, by its folder or by its name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from kube_rdma.adapters.kernel.sysfs.tree import SysfsRoot


class RecordedNode(click.ParamType["SysfsRoot"]):
    """The type of --sysfs: a folder that --record wrote, else the name of a bundled machine.

    An existing folder with a folder `class` comes first. Other paths are refused by whoever reads
    them.
    """

    name = "node"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> SysfsRoot:
        """Return the recorded tree of this name or folder; raise Refused for an unknown name."""
        from kube_rdma.hardware import machines

        path = Path(value)
        if (path / "class").is_dir():
            return path
        if value in machines.names():
            return machines.machine(value)
        if path.name == value and not path.exists():
            raise machines.unknown(value)
        return path


def sysfs_option(
    purpose: str, *, multiple: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option --sysfs; `purpose` says in its help what the command does with the node."""
    return click.option(
        "--sysfs",
        type=RecordedNode(),
        multiple=multiple,
        metavar="DIR|NAME",
        help=f"{purpose} DIR is a folder that `kube-rdma devices --record` wrote, NAME a machine "
        "that comes with kube-rdma, such as dgx-like.",
    )
