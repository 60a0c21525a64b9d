"""`python -m bench.scale_agents`: a process with many nodes of `scale`, told by lines what to do.

Each line of the standard input is a word, each answer a line of JSON. `start` lets all nodes come
at once and answers when they have arrived, `card INDEX` takes a card of one away, `mark` forgets
what was written, `each RESOURCE` waits until every node has written that since, `addresses` lets
all ask for eight addresses at once, `streams` waits until all watches are there again, `traffic`
tells what was counted and counts anew, `memory` what the process has.
"""

from __future__ import annotations

import asyncio
import json
import resource as limits
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from bench.scale_node import WATCHES, ScaleNode, Surveys, Traffic, surveys, until
from bench.scale_site import resident
from kube_base.frozen import replace
from kube_client import wire
from kube_client.connect import connect
from kube_client.kubeconfig import Access, UserEntry, find_access
from kube_rdma.lib import logs

PATIENCE = 900.0  # seconds for any word
CARD_SECONDS = 30.0
TOKEN_SECONDS = 24 * 3600
AT_ONCE = 16  # tokens
Answer = dict[str, Any]


@click.command()
@click.argument("nodes", nargs=-1, required=True)
@click.option("--kubeconfig", type=click.Path(path_type=Path), required=True)
@click.option("--namespace", required=True)
@click.option("--account", required=True, help="Service account of the agents.")
@click.option("--folder", type=click.Path(path_type=Path), required=True, help="Their disks.")
def main(
    nodes: tuple[str, ...], kubeconfig: Path, namespace: str, account: str, folder: Path
) -> None:
    """Be the agents of NODES until the standard input ends."""
    hard = limits.getrlimit(limits.RLIMIT_NOFILE)[1]
    limits.setrlimit(limits.RLIMIT_NOFILE, (hard, hard))
    logs.configure()

    async def run() -> None:
        access = find_access(kubeconfig)
        tokens = await _tokens(kubeconfig, namespace, account, nodes)
        await _Agents(nodes, tokens, access, folder).obey(namespace)

    asyncio.run(run())


async def _tokens(
    kubeconfig: Path, namespace: str, account: str, nodes: Sequence[str]
) -> tuple[str, ...]:
    """A token for each node, bound to its Node object as those of an agent's pod are."""
    slots = asyncio.Semaphore(AT_ONCE)
    async with connect(kubeconfig, user_agent="kube-rdma-bench/1") as cluster:
        uids = {node: await _uid(cluster, node) for node in nodes}

        async def token(node: str) -> str:
            bound = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uids[node]}
            spec = {"boundObjectRef": bound, "expirationSeconds": TOKEN_SECONDS}
            version = "authentication.k8s.io/v1"
            document = {"apiVersion": version, "kind": "TokenRequest", "spec": spec}
            request = wire.ApiRequest(
                "create",
                "",
                "v1",
                "serviceaccounts",
                namespace,
                account,
                "token",
                body=msgspec.json.encode(document),
            )
            async with slots:
                return str(json.loads(await cluster.write(request))["status"]["token"])

        return tuple(await asyncio.gather(*map(token, nodes)))


async def _uid(cluster: Any, node: str) -> str:
    from kube_rdma.adapters.cluster.kinds.node import NODE

    stored = await cluster.get(NODE, node)
    assert stored
    return str(stored.uid)


def _own(access: Access, token: str) -> Access:
    return replace(access, user=UserEntry(token=token))


class _Agents:
    """The nodes of this process."""

    def __init__(
        self, names: Sequence[str], tokens: Sequence[str], access: Access, folder: Path
    ) -> None:
        shown: Surveys = surveys()
        self._traffic = Traffic()
        self._nodes = [
            ScaleNode(name, folder / name, _own(access, token), shown, self._traffic)
            for name, token in zip(names, tokens, strict=True)
        ]
        self._words: dict[str, Callable[..., Any]] = {
            "start": self._start,
            "card": self._card,
            "mark": self._mark,
            "each": self._written,
            "addresses": self._addresses,
            "streams": self._streams,
            "traffic": self._counted,
            "memory": self._memory,
        }

    async def obey(self, namespace: str) -> None:
        """Do what the standard input says, until it ends."""
        self._namespace = namespace
        _say({"ready": len(self._nodes)})
        async with asyncio.TaskGroup() as tasks:
            self._tasks: list[asyncio.Task[None]] = []
            self._group = tasks
            while line := await asyncio.to_thread(sys.stdin.readline):
                word, *rest = line.split()
                _say(await self._words[word](*rest))
            for task in self._tasks:
                task.cancel()

    async def _start(self) -> Answer:
        begin = _now()
        self._tasks += [self._group.create_task(node.run(self._namespace)) for node in self._nodes]
        times: dict[str, float] = {}

        def settled() -> bool:
            for node in self._nodes:
                if node.name not in times and node.is_settled:
                    times[node.name] = _now() - begin
            return len(times) == len(self._nodes)

        missing = [] if await until(settled, PATIENCE) else self._unsettled(times)
        return {"seconds": sorted(times.values()), "missing": missing}

    def _unsettled(self, times: dict[str, float]) -> list[str]:
        """Why nodes have not arrived, of some of them."""
        late = [(node.name, node.counted) for node in self._nodes if node.name not in times]
        return [f"{name}: {it.streams} streams, {sorted(it.written)}" for name, it in late[:3]]

    async def _card(self, index: str) -> Answer:
        node = self._nodes[int(index)]
        node.counted.written.clear()
        begin = node.lose_card()
        wanted = ("events", "nodereports/status", "resourceslices", "nodes/status")
        written = node.counted.written
        await until(lambda: all(name in written for name in wanted), CARD_SECONDS, 0.01)
        return {name: written[name][0] - begin for name in wanted if name in written}

    async def _mark(self) -> Answer:
        for node in self._nodes:
            node.counted.written.clear()
        return {"marked": _now()}

    async def _written(self, kind: str) -> Answer:
        """The times since `mark` cannot be told by another process, so the clock's are given."""
        written = [node.counted.written[kind] for node in self._nodes]
        await until(lambda: all(written), PATIENCE)
        times = [moments[0] for moments in written if moments]
        return {"times": sorted(times), "missing": len(self._nodes) - len(times)}

    async def _addresses(self) -> Answer:
        async with asyncio.timeout(PATIENCE):
            times = await asyncio.gather(*(node.ask_addresses() for node in self._nodes))
        return {"seconds": sorted(times)}

    async def _streams(self) -> Answer:
        begin = _now()
        well = await until(
            lambda: all(node.counted.streams == WATCHES for node in self._nodes), PATIENCE
        )
        return {"seconds": _now() - begin, "well": well}

    async def _counted(self) -> Answer:
        document: Answer = dict(self._traffic.document())
        self._traffic.clear()
        return document

    async def _memory(self) -> Answer:
        return {"mib": await asyncio.to_thread(resident, "self")}


def _now() -> float:
    """CLOCK_MONOTONIC, which all processes of a machine share."""
    return asyncio.get_running_loop().time()


def _say(answer: Answer) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
