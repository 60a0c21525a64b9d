"""One ADD on a timeline: records it, and draws docs/add.svg of the record.

    python -m bench.attach_timeline          record on this machine (root), then draw
    python -m bench.attach_timeline --draw   draw what bench/add.json has

The node is that of `attach` (attach_node.py): real links, journal with fsync and IPAM, the API
server in memory, the kubelet a process. A test holds that the picture is drawn of the record.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from bench.attach_kubelet import kubelet
from bench.attach_node import KUBELET, TREE, Node, Watch, make_rails, rails, running, settled
from bench.timeline import SpanText, Timeline, TimelineSpan
from bench.timeline_svg import timeline_svg
from kube_base.frozen import asdict
from kube_rdma.adapters.kernel.pod.steps import PodNetwork
from kube_rdma.attach.views import describe
from kube_rdma.lib import logs
from kube_rdma.model.attach.attachment import Attachment, AttachmentKey
from kube_rdma.model.attach.cni import Verb

T = TypeVar("T")
ROOT = Path(__file__).parents[1]
RECORD, PICTURE = ROOT / "bench/add.json", ROOT / "docs/add.svg"
NICS, ROUNDS, WARM = 2, 200, 3
TITLE = "What an ADD of a pod with two networks does"
NOTE = (
    f"The fastest of {ROUNDS} of python -m bench.attach_timeline: real links and disk, no RDMA, "
    "API server in memory."
)


def _begun(_: AttachmentKey, attachment: Attachment) -> str:
    return "journal: the whole plan" if attachment.plans else "journal: an ADD has begun"


# Whom the agent asks, by the part of it that does; what each question is for.
PARTS: Mapping[str, tuple[str, Mapping[str, SpanText]]] = {
    "node": (
        "API server",
        {
            "pod": "read the pod",
            "definition": "read a network",
            "has_pool": "look for the pool",
            "tell": "write the pod's status",
            "tell_own": "write the pod's own annotation",
        },
    ),
    "kubelet": ("kubelet", {"holdings": "which cards does the pod hold?"}),
    "survey": (
        "kernel",
        {
            "host": "links and cards of the node",
            "settings": "settings of its functions",
            "devices": "RDMA devices of the pod",
        },
    ),
    "journal": (
        "disk",
        {"begin": _begun, "complete": "journal: it is complete"},
    ),
    "addresses": ("addresses", {"add": "take addresses from the node's blocks"}),
    "binding": ("agent", {"attach": "bind shares to devices"}),
}


class TimelineWatch(Watch):
    """Has a span for each question of the agent, and for each Step in the kernel."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline

    def part(self, name: str, part: T) -> T:
        """As Watch.part; what reads the node asks the API server, the kubelet and the kernel."""
        names = ("node", "kubelet", "survey") if name == "node" else (name,)
        for asked in names:
            lane, texts = PARTS[asked]
            part = self._timeline.around(part, lane, texts)
        return part

    def pod(self, pod: PodNetwork) -> PodNetwork:
        """As Watch.pod."""
        return self._timeline.around(pod, "kernel", {"run": describe})


async def _rounds(folder: Path, rounds: int) -> tuple[TimelineSpan, ...]:
    """The spans of the fastest ADD, which has the least of other work of the machine in it."""
    from bench.standin import card, write_node

    logs.configure()
    make_rails()
    write_node(folder / TREE, [card(number) for number in range(8)])
    timeline = Timeline()
    async with running(folder, rails(folder / TREE), TimelineWatch(timeline)) as node:
        every = [await _round(node, timeline) for _ in range(WARM + rounds)]
    return min(every[WARM:], key=lambda one: one[0])[1]


async def _round(node: Node, timeline: Timeline) -> tuple[float, tuple[TimelineSpan, ...]]:
    """One ADD, and how long it took; the DEL behind it is not kept."""
    sandbox = node.sandbox(NICS)
    await settled()
    timeline.start()
    took = await node.answer(Verb.ADD, sandbox)
    spans = timeline.spans
    await node.answer(Verb.DEL, sandbox)
    return took, spans


def record(folder: Path, rounds: int) -> str:
    """Record in a network namespace of a process of its own, as `attach` measures."""
    with kubelet(folder / KUBELET):
        words = ["-m", "bench.attach_timeline", str(folder), str(rounds)]
        done = subprocess.run(
            ["unshare", "--net", sys.executable, *words],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    return done.stdout


def spans_of(text: str) -> tuple[TimelineSpan, ...]:
    """The spans of a record."""
    return tuple(TimelineSpan(**one) for one in json.loads(text)["spans"])


def draw() -> str:
    """The picture of the record."""
    return timeline_svg(spans_of(RECORD.read_text()), TITLE, NOTE)


def main(words: list[str]) -> None:
    """Record unless only a picture is asked for; with a folder, be the process that records."""
    if words and words[0] != "--draw":
        spans = [asdict(one) for one in asyncio.run(_rounds(Path(words[0]), int(words[1])))]
        print(json.dumps({"networks": NICS, "spans": spans}, indent=1))
        return
    if not words:
        with tempfile.TemporaryDirectory(prefix="add-") as name:
            RECORD.write_text(record(Path(name), ROUNDS))
    PICTURE.write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
