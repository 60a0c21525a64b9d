"""What wakes an agent that has nothing to do: each timer of its loop by name, with all roles."""

import asyncio
import sys
from collections import Counter
from contextlib import nullcontext

from kube_base.frozen import replace
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds import resource_api
from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.adapters.cluster.kinds.own import DEFINITION, NODE_REPORT
from kube_rdma.agent.compose import AgentOptions, opened
from kube_rdma.agent.loop import run_plugin
from kube_rdma.ipam.cluster import IP_BLOCK, IP_POOL, LEASE
from kube_rdma.pools.kind import NODE_POLICY
from kube_rdma_testing.cluster.server import FakeServer
from kube_rdma_testing.kubelet.kubelet import FakeKubelet
from kube_rdma_testing.runtime.cri import FakeCriRuntime
from tests.kit.beside import beside
from tests.unit.agent.conftest import Node, card

KINDS = (IP_BLOCK, IP_POOL, LEASE, DEFINITION, NODE_REPORT, NODE_POLICY)
KINDS += (resource_api.RESOURCE_CLAIM, resource_api.RESOURCE_SLICE)
EACH_MINUTE = {"ShareLimitRounds.run"}
ONCE = {"Neighbours._arm"}  # no LLDP frame came for two minutes


class Loop(asyncio.SelectorEventLoop):
    """Knows who waits for what time."""

    def __init__(self):
        super().__init__()
        self.timers, self.made = [], Counter()

    def call_at(self, when, callback, *args, context=None):
        handle = super().call_at(when, callback, *args, context=context)
        frame = sys._getframe(1)
        while frame and not frame.f_globals["__name__"].startswith("kube_rdma."):
            frame = frame.f_back
        name = frame.f_code.co_qualname if frame else ""
        if name:
            self.made[name] += 1
            self.timers.append((name, handle))
        return handle

    @property
    def waits(self):
        """Who waits for which timer, for so many seconds yet."""
        now = self.time()
        left = [(name, one.when() - now) for name, one in self.timers if not one.cancelled()]
        return [(name, seconds) for name, seconds in left if seconds > 0]


def test_an_agent_at_rest_has_no_timer_that_is_due_soon(tmp_path_factory):
    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(rest(tmp_path_factory.mktemp("n"), runner.get_loop()))


async def rest(folder, loop):
    server, config = FakeServer(KINDS), folder / "config.json"
    config.write_text('{"mode": "hca"}')
    for name in ("etc/cni/net.d", "opt/cni/bin"):
        (folder / "host" / name).mkdir(parents=True)
    (folder / "host/opt/cni/bin/bridge").touch(0o755)
    network = '{"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "bridge"}]}'
    (folder / "host/etc/cni/net.d/10-pods.conflist").write_text(network)
    status = {"nodeInfo": {"kubeletVersion": "v1.36.0"}}
    server.put(NODE, {"metadata": {"name": "node-1"}, "spec": {}, "status": status})
    options = AgentOptions(
        config=config,
        node="node-1",
        connect=lambda: nullcontext(Cluster(server.line())),
        networks=True,
        claims=True,
        health=("127.0.0.1", 0),
        kubelet_root=folder,
        runtime_socket=folder / "cri.sock",
        **{path: folder / path for path in ("state_dir", "cdi_dir", "socket", "host")},
    )
    runtime = FakeCriRuntime(options.runtime_socket, "containerd", "v2.4.2", {})
    async with FakeKubelet.at(folder) as kubelet, runtime, opened(options) as agent:
        for keeper in agent.keepers:
            keeper._pace = replace(keeper._pace, spacing=0.0)
        agent.networks._sources = replace(agent.networks._sources, shim=lambda: b"shim")
        async with beside(run_plugin(replace(agent, kernel=Node(card(0)).kernel))):
            await kubelet.until(lambda: kubelet.devices)
            while any(seconds < 30 for _, seconds in loop.waits):
                assert max(loop.made.values()) < 50, loop.made.most_common(3)
                await asyncio.sleep(0.01)
            soon = {name for name, seconds in loop.waits if seconds < 120}
            assert soon - ONCE == EACH_MINUTE
