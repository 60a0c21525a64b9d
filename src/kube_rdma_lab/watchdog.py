"""Starts a machine anew whose console stays silent.

It acts between the start of a machine (supervisor.py, bare/run.py) and its first boot stage. A
machine that ends or says `lab: failed` is not restarted: that is reported at once.
"""

from __future__ import annotations

from kube_rdma_lab.console import Console
from kube_rdma_lab.patience import Patience
from kube_rdma_lab.processes import Program
from kube_rdma_lab.progress import Event, Phase, Report

BOOTED = "booted"
# Of the reference (pace.py). Two emulated machines on two processors: the kernel speaks after 3 s
# and is silent for 10 s before `booted`; with four machines and tests beside them it was 17 s each.
SILENT_SECONDS = 60.0
RESTARTS = 2
LAST_SECONDS = 300.0


async def awake(
    program: Program,
    console: Console,
    report: Report,
    slowness: float,
    silent: float = SILENT_SECONDS,
) -> None:
    """Wait until a machine has booted; restart it if its console is silent for `silent` seconds.

    After RESTARTS restarts it may be silent for LAST_SECONDS. Then it is slow, and one more start
    would only throw away what it has done. Seconds are multiplied by `slowness`.
    """
    seconds = silent * max(1.0, slowness)

    async def stirs_or_is_lost() -> bool:
        return await console.reached(BOOTED) or console.silent_seconds() > seconds

    for _ in range(RESTARTS):
        await program.until(stirs_or_is_lost)
        if await console.reached(BOOTED):
            return
        why = "its console stayed silent, started anew"
        report(Event(f"{program.name} {BOOTED}", Phase.AGAIN, seconds, why))
        await program.restart(f"its console stayed silent for {seconds:.0f} s")
    await program.until(lambda: console.reached(BOOTED), Patience(slowness, LAST_SECONDS))
