"""`kube-rdma lab logs`: the logs of a lab, which lie in its folder or on its nodes."""

from __future__ import annotations

from kube_base.errors import Refused
from kube_rdma_lab import state, waiting
from kube_rdma_lab.lab import find, up_command


def print_log(name: str, program: str | None, node: str | None) -> None:
    """Print a service's log, read on its node, or a log of the lab's folder.

    With a node alone, or a node and `console`, it is that node's console. Logs of the folder
    outlive a crash of the lab. Raise Refused, which lists them, for an unknown one.
    """
    folder = state.home(name) / "logs"
    if node and program and program != "console":
        lab = find(name)
        print(waiting.run(lab, lab.on_node(node, "cat", f"/var/log/{program}.log")), end="")
        return
    wanted = f"{node}.console" if node else program
    logs = sorted(path.stem for path in folder.glob("*.log"))
    if wanted not in logs:
        raise Refused(
            f"the lab {name!r} has no log {wanted!r}" if wanted else "no log was named",
            remedy=f"Choose one of {', '.join(logs)}, or --node NODE with a service"
            if logs
            else f"Start a lab first: {up_command(name)}",
        )
    print((folder / f"{wanted}.log").read_text(errors="replace"), end="")
