"""`python -m bench.scale_agents`: a process with many nodes of `scale`, told by lines what to do.

Each line of the standard input is a word, each answer a line of JSON. `start RESOURCE…` lets the
nodes come, a few at a time, and answers when all have arrived and written these, `stop` ends them,
`card INDEX` takes a card of one away, `mark` forgets what was written and told, `each RESOURCE`
waits until every node has written that since, `told RESOURCE` until every node was told of it,
`quiet RESOURCE…` until no node is told of these any more, `address INDEX` lets one ask for eight
addresses and `addresses` all at once, `streams` waits until all watches are there again,
`traffic` tells what was counted and counts anew, `memory` what the process has.
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

from bench.scale_node import ScaleNode, Surveys, Traffic, surveys, until
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
COMING = 8  # nodes at a time, as in a rolling update: more wait for the processor, not for a server
QUIET_SECONDS = 3.0
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

        def nodes() -> list[ScaleNode]:
            return [
                ScaleNode(name, folder / name, _own(access, token), shown, self._traffic)
                for name, token in zip(names, tokens, strict=True)
            ]

        self._make, self._nodes = nodes, nodes()
        self._words: dict[str, Callable[..., Any]] = {
            "start": self._start,
            "stop": self._stop,
            "card": self._card,
            "mark": self._mark,
            "each": self._written,
            "told": self._told,
            "quiet": self._quiet,
            "address": self._address,
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

    async def _start(self, *wanted: str) -> Answer:
        slots, begin = asyncio.Semaphore(COMING), _now()

        async def come(node: ScaleNode) -> tuple[float, float, str]:
            async with slots:
                came = _now()
                self._tasks.append(self._group.create_task(node.run(self._namespace)))
                well = await until(lambda: node.is_settled(frozenset(wanted)), PATIENCE)
                it = node.counted
                late = "" if well else f"{node.name}: {it.streams}, {sorted(it.written)}"
                return _now() - begin, _now() - came, late

        times = await asyncio.gather(*map(come, self._nodes))
        missing = [late for *_, late in times if late]
        return {"seconds": [each[0] for each in times], "each": [each[1] for each in times]} | {
            "missing": missing[:3]
        }

    async def _stop(self) -> Answer:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        before, self._nodes = self._nodes, self._make()
        for old, new in zip(before, self._nodes, strict=True):
            new.survey = old.survey
        return {}

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
            node.counted.told.clear()
        return {"marked": _now()}

    async def _written(self, kind: str) -> Answer:
        """The times since `mark` cannot be told by another process, so the clock's are given."""
        written = [node.counted.written[kind] for node in self._nodes]
        await until(lambda: all(written), PATIENCE)
        times = [moments[0] for moments in written if moments]
        return {"times": sorted(times), "missing": len(self._nodes) - len(times)}

    async def _told(self, kind: str) -> Answer:
        well = await until(lambda: all(kind in node.counted.told for node in self._nodes), PATIENCE)
        return {"well": well}

    async def _quiet(self, *kinds: str) -> Answer:
        def last() -> float:
            told = (node.counted.told for node in self._nodes)
            return max((each.get(kind, 0.0) for each in told for kind in kinds), default=0.0)

        return {"well": await until(lambda: _now() - last() > QUIET_SECONDS, PATIENCE)}

    async def _address(self, index: str) -> Answer:
        return {"seconds": await self._nodes[int(index)].ask_addresses()}

    async def _addresses(self) -> Answer:
        async with asyncio.timeout(PATIENCE):
            times = await asyncio.gather(*(node.ask_addresses() for node in self._nodes))
        return {"seconds": sorted(times)}

    async def _streams(self) -> Answer:
        begin = _now()
        well = await until(lambda: all(node.follows_all for node in self._nodes), PATIENCE)
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
