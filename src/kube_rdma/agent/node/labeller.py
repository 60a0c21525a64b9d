"""Role `node` alone: labels its node, for programs that select nodes by such labels.

A DaemonSet that is selected by a label cannot write it, seed S3's among them. So this part of the
agent runs on every node, beside whatever offers the cards, and needs neither kubelet nor privilege.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial

import structlog

from kube_base.errors import KubeError
from kube_base.frozen import Frozen
from kube_rdma import __version__
from kube_rdma.adapters.bulkhead import start
from kube_rdma.agent.node.node_events import NodeEvents
from kube_rdma.agent.node.node_labels import NodeLabels
from kube_rdma.hardware import kernel_events
from kube_rdma.hardware.kernel_events import KernelSources
from kube_rdma.hardware.relevance import CardEvents
from kube_rdma.lib.debounce import Debounce

# The node is looked at again so often, for what the kernel announces to nobody: the state of an
# InfiniBand port, and whatever its closed doors would have told.
AGAIN_SECONDS = 60.0

log = structlog.get_logger()


class LabelSources(Frozen):
    """What the role asks, and what it writes; `labels` None leaves them alone."""

    kernel: KernelSources
    node: NodeEvents
    labels: NodeLabels | None


async def run_labeller(sources: LabelSources) -> None:
    """Label the node until cancelled."""
    labels = sources.labels
    log.info("started", version=__version__, role="node")
    if labels is None:
        await asyncio.Event().wait()
        return
    changes, relevance = Debounce(), CardEvents()
    async with AsyncExitStack() as stack:
        # Listening begins before the first look, so that nothing falls between the two.
        announcements = await kernel_events.listen(sources.kernel, stack)
        async with asyncio.TaskGroup() as tasks:
            heard = {
                f"kernel events {number}": partial(
                    kernel_events.hear, stream, changes, relevance.concern
                )
                for number, stream in enumerate(announcements)
            }
            start(tasks, heard, ends=KubeError)
            follow = partial(sources.node.follow, labels.seen)
            start(tasks, {"node": follow, labels.part: labels.run})
            while True:
                survey = await asyncio.to_thread(sources.kernel.survey)
                relevance.surveyed(survey)
                labels.keep(labels.of_survey(survey))
                await changes.wait(AGAIN_SECONDS)
