"""What programs cost before they do anything: imports, most of all on emulated processors.

Each is the real command, brought to its end by what it reads: the agents by a configuration that is
refused, which comes after all doors were opened. KUBE_RDMA_BESIDE names another checkout (another
commit in a worktree, with a .venv of its own): its commands run in turns with these, for a ratio.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bench.context import Context
from bench.figures import Figure

ROUNDS = 7
COMMAND = str(Path(sys.executable).with_name("kube-rdma"))
REFUSED = '{"configList": [{"resourceName": "hca", "rdmaHcaMax": 0, "devices": ["ens2f0"]}]}'
_IMPORT = "import time:"


def programs(folder: Path) -> Mapping[str, Sequence[str]]:
    """The commands by name; `folder` is empty and gets what they read."""
    config, kubeconfig, kubelet = (folder / name for name in ("config.json", "kubeconfig", "k"))
    config.write_text(REFUSED)
    kubeconfig.write_text(json.dumps(_nowhere()))
    (kubelet / "device-plugins").mkdir(parents=True)
    plugin = (COMMAND, "agent", "--config", str(config), "--kubelet-root", str(kubelet))
    places = {
        "--kubeconfig": kubeconfig,
        "--state-dir": folder / "state",
        "--cdi-dir": folder / "cdi",
        "--runtime-socket": folder / "runtime.sock",
        "--socket": folder / "agent.sock",
        "--host": folder,
    }
    return {
        "bare_python": (sys.executable, "-c", "pass"),
        "devices": (COMMAND, "devices", "--help"),
        "lab": (COMMAND, "lab", "--help"),
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


def _environment() -> dict[str, str]:
    """With compiled files, as an image has them; a process without would measure the compiler."""
    return {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def modules(argv: Sequence[str]) -> frozenset[str]:
    """The modules that a command imports, Python's own first ones among them."""
    env = {**_environment(), "PYTHONPROFILEIMPORTTIME": "1"}
    ended = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    lines = [line for line in ended.stderr.splitlines() if line.startswith(_IMPORT)]
    return frozenset(line.rpartition("|")[2].strip() for line in lines)


def cpu_seconds(argv: Sequence[str]) -> float:
    """What the processors spend on one process."""
    none = subprocess.DEVNULL
    with subprocess.Popen(argv, env=_environment(), stdout=none, stderr=none) as process:
        _, _, used = os.wait4(process.pid, 0)
        process.returncode = 0
    return used.ru_utime + used.ru_stime


def measure(context: Context) -> Iterator[Figure]:
    """Run all in turns; the least of each, as a ratio to a Python that does nothing."""
    with tempfile.TemporaryDirectory() as folder:
        commands = {**programs(Path(folder))}
        names = tuple(commands)
        if checkout := os.environ.get("KUBE_RDMA_BESIDE"):
            other = str(Path(checkout) / ".venv/bin/kube-rdma")
            ours = {name: argv for name, argv in commands.items() if argv[0] == COMMAND}
            commands |= {f"{name}_beside": (other, *argv[1:]) for name, argv in ours.items()}
        imported = {name: modules(argv) for name, argv in commands.items()}
        rounds = [
            {name: cpu_seconds(argv) for name, argv in commands.items()}
            for _ in range(context.times(ROUNDS, 1))
        ]
    least = {name: min(one[name] for one in rounds) for name in commands}
    for name, seconds in least.items():
        note = f"{seconds * 1000:.0f} ms of CPU, {len(imported[name])} modules"
        yield Figure(f"{name}_ratio", seconds / least["bare_python"], "×", "", note)
    for name in names:
        if before := least.get(f"{name}_beside"):
            yield Figure(f"{name}_to_beside", least[name] / before, "×", "", checkout or "")
