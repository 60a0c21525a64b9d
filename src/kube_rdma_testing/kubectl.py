"""kubectl of a small cluster on disk, in whose pods perftest runs: `kubectl.py FOLDER WORDS…`.

    FOLDER/cluster.json   {"nodes": [...], "pods": [...], "figures": {"CLIENT SERVER": Gb/s}, …}
    FOLDER/listening/     a file for each server that waits: ADDRESS PORT
    FOLDER/log            a line for each client that began and ended

It knows the calls that adapters/kubectl and programs/bandwidth make, and refuses all others. A
client whose server does not listen cannot connect, and no server serves twice.
"""

from __future__ import annotations

import fcntl
import json
import re
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kube_rdma.rules.verify.perftest import LISTENING

HEADER = "#bytes #iterations BW peak[Gb/sec] BW average[Gb/sec] MsgRate[Mpps]"
_WORD = re.compile(r"ib_\w+ .*")


class FakeKubectl:
    """One call."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "listening").mkdir(exist_ok=True)

    def call(self, words: list[str]) -> int:
        """Do it and return the exit status."""
        match words:
            case ["get", "nodes", "-o", "json"]:
                self._print({"items": self._state()["nodes"]})
            case ["get", "pods", *chosen, "-o", "json"]:
                return self._get(chosen)
            case ["create", *_, "-f", "-"]:
                return self._create(json.load(sys.stdin))
            case ["delete", "pods", "-l", label, *_]:
                with self._changed() as state:
                    state["pods"] = [pod for pod in state["pods"] if not _has(pod, label)]
            case ["exec", "-n", _, "-i", pod, "--", "sh", "-c", script]:
                return self._client(pod, script) if "ib_" in script else self._probe(pod)
            case ["exec", "-n", _, pod, "--", "sh", "-c", script]:
                return self._serve(pod, script)
            case _:
                return _fails(f"unknown command {shlex.join(words)}")
        return 0

    def _get(self, chosen: list[str]) -> int:
        pods = self._state()["pods"]
        if "-l" in chosen:
            label = chosen[chosen.index("-l") + 1]
            self._print({"items": [pod for pod in pods if _has(pod, label)]})
            return 0
        named = {pod["metadata"]["name"]: pod for pod in pods}
        missing = [name for name in chosen if name not in named]
        if missing:
            return _fails(f'Error from server (NotFound): pods "{missing[0]}" not found')
        pods = [named[name] for name in chosen]
        self._print(pods[0] if len(pods) == 1 else {"items": pods})
        return 0

    def _create(self, pod: dict[str, Any]) -> int:
        node = pod["spec"]["affinity"]["nodeAffinity"]
        terms = node["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        name = terms[0]["matchFields"][0]["values"][0]
        with self._changed() as state:
            if name in state.get("over_quota", ()):
                return _fails("Error from server (Forbidden): exceeded quota: rdma")
            number = len(state["pods"]) + 1
            pod["metadata"].setdefault("namespace", "default")
            ready = {"type": "Ready", "status": "True"}
            pod["status"] = {"podIP": f"10.0.0.{number}", "conditions": [ready]}
            if name in state.get("full", ()):
                full = {"type": "PodScheduled", "status": "False", "message": "Insufficient rdma"}
                pod["status"] = {"phase": "Pending", "conditions": [full]}
            else:
                pod["spec"]["nodeName"] = name
            state["pods"].append(pod)
        return 0

    def _probe(self, pod: str) -> int:
        sys.stdin.read()
        if pod in self._state().get("without_devices", ()):
            return 0
        print("port mlx5_0 1 card 100 Gb/sec (4X EDR)")
        self._print({"UCX_NET_DEVICES": "mlx5_0:1", "UCX_IB_GID_INDEX": "3"})
        return 0

    def _serve(self, pod: str, script: str) -> int:
        (address,) = [p["status"]["podIP"] for p in self._state()["pods"] if _name(p) == pod]
        place = self._folder / "listening" / f"{address} {_option(script, '-p')}"
        place.touch(exist_ok=False)
        print(LISTENING, flush=True)
        signal.sigwait({signal.SIGTERM})  # until somebody kills it
        return 0

    def _client(self, pod: str, script: str) -> int:
        words = shlex.split(_WORD.findall(script)[0])
        address, port = words[-1], _option(script, "-p")
        place = self._folder / "listening" / f"{address} {port}"
        state = self._state()
        server = next((_name(p) for p in state["pods"] if p["status"].get("podIP") == address), "")
        if not place.exists():
            return _fails(f"Couldn't connect to {address}:{port}")
        place.unlink()
        self._log(f"begin {pod} {server}")
        figure = state.get("figures", {}).get(f"{pod} {server}", state.get("figure", 97.5))
        self._log(f"end {pod} {server}")
        if figure is None:
            return _fails("Completion with error at client\nFailed status 12: wr_id 0")
        print(f"{HEADER}\n 65536 5000 {figure} {figure} 0.18")
        return 0

    def _state(self) -> dict[str, Any]:
        return dict(json.loads((self._folder / "cluster.json").read_text()))

    @contextmanager
    def _changed(self) -> Iterator[dict[str, Any]]:
        with (self._folder / "cluster.json").open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            state = json.load(file)
            yield state
            file.seek(0)
            file.truncate()
            json.dump(state, file)

    def _log(self, line: str) -> None:
        with (self._folder / "log").open("a") as file:
            file.write(f"{line}\n")

    def _print(self, document: object) -> None:
        print(json.dumps(document))


def _name(pod: dict[str, Any]) -> str:
    return str(pod["metadata"]["name"])


def _has(pod: dict[str, Any], label: str) -> bool:
    key, _, value = label.partition("=")
    return bool(pod["metadata"].get("labels", {}).get(key) == value)


def _option(script: str, name: str) -> str:
    words = shlex.split(_WORD.findall(script)[0])
    return words[words.index(name) + 1]


def _fails(why: str) -> int:
    print(why, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(FakeKubectl(Path(sys.argv[1])).call(sys.argv[2:]))
