"""What is done to a driver on its node, as a script of the node's shell.

A trap is laid before the pods are made (stopping_agent.py, and the hook in Go, know it). The script
waits until a step is reached, does what the fault is, and lets the driver go on.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bench.fail_open.steps import AWAY_SECONDS, FROZEN_SECONDS, RESTARTS, Fault, Plan
from kube_base.errors import Unavailable
from kube_rdma_lab import cluster
from kube_rdma_lab.lab import Lab

FOLDER = "/run/fail-open"
REACHED_SECONDS = 60
ENDED_SECONDS = 30
MISSED = "missed"

# `pid` is the driver's first process, as the node counts.
ACTS = {
    Fault.FROZEN: f"""
kill -STOP "$pid"
echo on >go
sleep {FROZEN_SECONDS}
kill -CONT "$pid"
""",
    Fault.KILLED: 'kill -KILL "$pid"',
    Fault.MEMORY: f"""
echo memory >go~ && mv go~ go
n=0
while [ -e "/proc/$pid/root/." ]; do
  n=$((n + 1))
  [ $n -lt {ENDED_SECONDS * 10} ] || {{ echo "it still runs after {ENDED_SECONDS} s"; break; }}
  sleep 0.1
done
""",
    # Both ways to it: by its own address and, behind kube-proxy, by that of its Service.
    Fault.AWAY: f"""
ip route add prohibit "$api"
echo on >go
sleep {AWAY_SECONDS}
ip route del prohibit "$api"
""",
}
# The driver removes the file when it goes on, so that `go` is there until it has seen it. One that
# the runtime has hung up on ends instead.
GONE_ON = f"""
n=0
while [ -e reached ] && [ -e "/proc/$pid/root/." ]; do
  n=$((n + 1))
  [ $n -lt {ENDED_SECONDS * 20} ] || {{ echo "it did not go on for {ENDED_SECONDS} s"; break; }}
  sleep 0.05
done
"""


@dataclass(frozen=True, slots=True)
class Target:
    """A driver on a node: the words by which `pgrep -f` finds it, and where its API server is."""

    node: str
    program: str
    api: str


def script(fault: Fault, target: Target) -> str:
    """What runs on the node from the moment that pods are made."""
    return f"""
cd {FOLDER}
n=0
until [ -e reached ]; do
  n=$((n + 1))
  [ $n -lt {REACHED_SECONDS * 20} ] || {{ rm -f trap; echo {MISSED}; exit 0; }}
  sleep 0.05
done
pid=$(pgrep -o -f '{target.program}') api={target.api}
{ACTS[fault]}
{"" if fault in RESTARTS else GONE_ON}
rm -f reached go
"""


@contextmanager
def broken(lab: Lab, plan: Plan, target: Target) -> Iterator[None]:
    """Have a driver meet its fault while pods come; Unavailable when no pod reached the step."""
    if plan.fault is Fault.NONE:
        yield
        return
    lay = f"mkdir -p {FOLDER} && cd {FOLDER} && rm -f reached go && echo {plan.step} >trap"
    cluster.shell(lab, target.node, lay)
    words = lab.on_node(target.node, "sh", "-c", script(plan.fault, target))
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            yield
            output, _ = process.communicate(timeout=REACHED_SECONDS + ENDED_SECONDS)
        except BaseException:
            process.kill()
            cluster.shell(lab, target.node, f"rm -f {FOLDER}/trap; touch {FOLDER}/go")
            raise
    if text := output.decode().strip():
        why = "no pod came so far" if text == MISSED else text.splitlines()[-1]
        raise Unavailable(f"{plan.fault} at {plan.step}: {why}")
