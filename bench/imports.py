"""What programs cost before they do anything: imports, most of all on emulated processors.

Each is the real command, brought to its end by what it reads: the agents by a configuration that is
refused, which comes after all dependencies were opened. The commands of all checkouts run in turns.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bench.checkout import OURS, Checkout, checkouts, turns
from bench.context import Context
from bench.figures import Figure

IN_TURNS = True
ROUNDS = 7
REFUSED = '{"configList": [{"resourceName": "hca", "rdmaHcaMax": 0, "devices": ["ens2f0"]}]}'
_IMPORT = "import time:"


def programs(folder: Path, checkout: Checkout = OURS) -> Mapping[str, Sequence[str]]:
    """The commands of a checkout by name; `folder` gets what they read."""
    config, kubeconfig, kubelet = (folder / name for name in ("config.json", "kubeconfig", "k"))
    config.write_text(REFUSED)
    kubeconfig.write_text(json.dumps(_nowhere()))
    (kubelet / "device-plugins").mkdir(parents=True, exist_ok=True)
    plugin = (checkout.program, "agent", "--config", str(config), "--kubelet-root", str(kubelet))
    places = {
        "--kubeconfig": kubeconfig,
        "--state-dir": folder / "state",
        "--cdi-dir": folder / "cdi",
        "--runtime-socket": folder / "runtime.sock",
        "--socket": folder / "agent.sock",
        "--host": folder,
    }
    return {
        "bare_python": (checkout.python, "-c", "pass"),
        "devices": (checkout.program, "devices", "--help"),
        "lab": (checkout.program, "lab", "--help"),
        "agent": plugin,
        "agent_networks": (
            *(*plugin, "--role=plugin", "--role=node", "--networks", "--node-name=none"),
            *(str(part) for pair in places.items() for part in pair),
        ),
    }


def _nowhere() -> object:
    """A kubeconfig of an API server that refuses every connection at once."""
    named = {"name": "nowhere"}
    return {
        "current-context": "nowhere",
        "contexts": [{**named, "context": {"cluster": "nowhere", "user": "nowhere"}}],
        "clusters": [{**named, "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{**named, "user": {}}],
    }


def modules(argv: Sequence[str], checkout: Checkout = OURS) -> frozenset[str]:
    """The modules that a command imports, Python's own first ones among them."""
    env = checkout.environment(PYTHONPROFILEIMPORTTIME="1")
    ended = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    lines = [line for line in ended.stderr.splitlines() if line.startswith(_IMPORT)]
    return frozenset(line.rpartition("|")[2].strip() for line in lines)


def cpu_seconds(argv: Sequence[str], checkout: Checkout = OURS) -> float:
    """What the processors spend on one process."""
    none = subprocess.DEVNULL
    with subprocess.Popen(argv, env=checkout.environment(), stdout=none, stderr=none) as process:
        _, _, used = os.wait4(process.pid, 0)
        process.returncode = 0
    return used.ru_utime + used.ru_stime


def measure(context: Context) -> Iterator[Figure]:
    """Run all in turns; the least of each, as a ratio to a Python that does nothing."""
    seconds: dict[tuple[Checkout, str], list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        commands = {each: programs(Path(folder), each) for each in checkouts()}
        counts = {
            (each, name): len(modules(argv, each))
            for each, by_name in commands.items()
            for name, argv in by_name.items()
        }
        for each in turns(context.times(ROUNDS, 1)):
            for name, argv in commands[each].items():
                seconds.setdefault((each, name), []).append(cpu_seconds(argv, each))
    for (each, name), taken in seconds.items():
        note = f"{min(taken) * 1000:.0f} ms of CPU, {counts[each, name]} modules"
        bare = min(seconds[each, "bare_python"])
        goal = "≤ 26" if name.startswith("agent") else ""
        yield each.named(Figure(f"{name}_ratio", min(taken) / bare, "×", goal, note))
