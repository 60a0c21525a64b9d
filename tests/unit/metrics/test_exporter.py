"""A scrape of a whole agent: kubelet, pools, counters and calls, over HTTP as Prometheus asks."""

import asyncio
import itertools
import socket
import urllib.request
from functools import partial

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kube_base.errors import Refused, Unavailable
from kube_base.frozen import replace
from kube_rdma.adapters.bulkhead import contained, object_failed
from kube_rdma.adapters.kubelet.pod_resources import PodResources
from kube_rdma.adapters.metrics import local
from kube_rdma.adapters.metrics.local import ask, samples
from kube_rdma.metrics.exporter import Exporter, MetricsSite, MetricsSources
from kube_rdma.metrics.rules import families
from kube_rdma.metrics.stopwatch import Stopwatch
from kube_rdma.model.attach.attachment import Attachment, Plan, Sandbox
from kube_rdma.model.attach.steps import MoveRdma
from kube_rdma.model.claims.devices import ClaimedDevice, DeviceSlice, PublishedCard, SliceDevice
from kube_rdma.model.device import PortState
from kube_rdma.model.late_binding import ContainerId, PodName
from kube_rdma.model.metrics import MetricNames
from kube_rdma.model.pools import DeviceUse, PodDeviceUse, RdmaLimits
from kube_rdma.model.survey import NamespaceMode
from kube_rdma.pools.kubelet_view import KubeletView, NodeSlices
from kube_rdma_testing.kernel.tree import write_tree
from kube_rdma_testing.kernel.tree_counters import write_counters
from kube_rdma_testing.kernel.tree_links import write_link
from kube_rdma_testing.kubelet.devices import ContainerPlace
from kube_rdma_testing.kubelet.kubelet import FakeKubelet
from kube_rdma_testing.recording import recorded
from tests.kit.beside import beside
from tests.unit.agent.world import VKE, World, hard_card

EVERY = tuple(MetricNames)
TRAIN = ContainerPlace("train-0", "worker")
USE = PodDeviceUse("default", "train-0", DeviceUse("mlx5_0", 1, 7), RdmaLimits(objects=9))


def lend(root, *cards):
    """A sysfs with these cards, each with every file that has a name, and one that has none."""
    write_tree(root, cards)
    for card in cards:
        for file in (*families.OF_NODE, families.LIFESPAN, "sent_pkts"):
            hardware = file in families.HARDWARE or file in (families.LIFESPAN, "sent_pkts")
            folder = "hw_counters" if hardware else "counters"
            write_counters(root, f"{card.name}/ports/1", folder, {file: 5})
        write_link(root, card.name)
    return root


class Scraped:
    """The samples of one answer, by name and labels; a series comes once."""

    def __init__(self, text):
        self.text = text
        self.values = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                key = (sample.name, tuple(sorted(sample.labels.items())))
                assert key not in self.values, key
                self.values[key] = sample.value

    @property
    def families(self):
        """The families as the text announces them."""
        return {line.split()[2] for line in self.text.splitlines() if line.startswith("# TYPE")}

    def of(self, name, **labels):
        """The values of the series with these labels, and maybe others."""
        return [
            value
            for (key, pairs), value in self.values.items()
            if key == name and labels.items() <= dict(pairs).items()
        ]


@pytest.fixture
def world(tmp_path_factory):
    world = World(tmp_path_factory.mktemp("w"), hard_card(0), hard_card(1))
    world.label("exclusive")
    return world


@pytest.fixture
def tree(tmp_path):
    return lend(tmp_path / "sys", hard_card(0), hard_card(1))


def exporting(world, tree, names=EVERY, *, address=("127.0.0.1", 0), pods=True, **further):
    """The agent's dependencies with an exporter on any port, and a socket beside the tree."""
    dependencies = world.dependencies()
    sources = MetricsSources(dependencies.kubelet, sysfs=tree, clock=seconds(), **further)
    site = MetricsSite(address, names, pods, tree.parent / "metrics.sock")
    return replace(dependencies, metrics=Exporter(site, sources))


def seconds():
    """A clock by which a second goes by whenever it is looked at."""
    return partial(next, itertools.count())


async def scrape(exporter):
    url = f"http://127.0.0.1:{exporter.port}/metrics"

    def get():
        with urllib.request.urlopen(url) as answer:
            return answer.read().decode()

    return Scraped(await asyncio.to_thread(get))


async def test_a_pods_traffic_stands_under_its_name(world, tree):
    dependencies = exporting(world, tree)
    async with world.serving(dependencies):
        await world.kubelet.until(lambda: world.kubelet.healthy(VKE) == 2)
        await world.kubelet.allocate(VKE, 1, place=TRAIN)
        write_counters(tree, "mlx5_0/ports/1", "counters", {"port_rcv_data": 1000})
        write_counters(tree, "mlx5_1/ports/1", "counters", {"port_rcv_data": 1000})
        seen = await scrape(dependencies.metrics)
        pod = {"namespace": "default", "pod": "train-0", "container": "worker"}
        assert seen.of("kube_rdma_pod_port_data_received_bytes_total", **pod) == [4000]
        assert seen.of("kube_rdma_pod_shares", **pod, resource=VKE) == [1]
        assert seen.of("kube_rdma_resource_shares_in_use", resource=VKE) == [1]
        assert seen.of("kube_rdma_scrape_holders_known") == [1]
        assert len(seen.of("node_infiniband_port_data_received_bytes_total")) == 2
        world.kubelet.remove_pod("train-0")
        after = await scrape(dependencies.metrics)
        assert after.of("kube_rdma_pod_port_data_received_bytes_total") == []
        assert after.of("kube_rdma_resource_shares_in_use") == [0]


class Slices:
    """The slices of a node, as claims/publisher follows them."""

    def __init__(self, *slices):
        self._slices = slices

    def slices(self):
        return self._slices


async def test_a_card_by_another_driver_s_claim_counts_for_its_pod(tree, tmp_path):
    """DRANET's, say: by the kubelet's word who holds it, by its slice which device it is."""
    card = PublishedCard("nic", hard_card(1).pci, "mlx5_1")
    async with FakeKubelet.at(tmp_path) as kubelet:
        view = KubeletView(PodResources(tmp_path / "pod-resources/kubelet.sock"))
        view.slices = Slices(DeviceSlice("dra.net", "node-1", 1, cards=(card,)))
        device = SliceDevice("dra.net", "node-1", "nic")
        kubelet.pod_resources.claimed = [ClaimedDevice("team", "train", "c", device)]
        sources = MetricsSources(view, sysfs=tree, clock=seconds())
        exporter = Exporter(MetricsSite((None, 1), pods=True), sources)
        seen = Scraped((await exporter.answer()).decode())
        pod = {"namespace": "team", "pod": "train", "container": "c", "device": "mlx5_1"}
        assert seen.of("kube_rdma_pod_port_data_received_bytes_total", **pod) == [20]
        info = {"resource": "dra.net", "access": "own", "card": hard_card(1).pci}
        assert seen.of("kube_rdma_pod_device_info", **pod, **info) == [1]
        view.slices = NodeSlices()  # nobody tells of slices
        seen = Scraped((await exporter.answer()).decode())
        assert seen.of("kube_rdma_pod_device_info") == []
        assert seen.of("kube_rdma_scrape_holders_known") == [1]


async def test_every_family_of_the_table_is_exported_and_no_other(world, tree):
    """docs/metrics.md is written from the table; this is what a node with everything says."""
    stopwatch = Stopwatch()
    for family, words in (
        (families.ATTACH, ("add",)),
        (families.IPAM, ()),
        (families.LATE_BINDING, ()),
    ):
        with stopwatch.timed(family, *words):
            pass
    with recorded(), contained("trial of metrics"):
        object_failed("Trial", "a", RuntimeError())
        raise RuntimeError("x")
    dependencies = exporting(world, tree, stopwatch=stopwatch, uses=lambda: (USE,))
    async with world.serving(dependencies):
        await world.kubelet.until(lambda: world.kubelet.healthy(VKE) == 2)
        await world.kubelet.allocate(VKE, 1, place=TRAIN)
        world.change(hard_card(0), hard_card(1, PortState.DOWN))
        await world.kubelet.until(lambda: world.kubelet.healthy(VKE) == 1)
        await scrape(dependencies.metrics)  # GID tables are counted for the next one
        seen = await scrape(dependencies.metrics)
    of_agents = set(families.FAMILIES) - set(families.CONTROLLER_FAMILIES)
    assert seen.families == {family.name for family in of_agents}
    assert seen.of("kube_rdma_card_health_changes_total", healthy="false") == [1]
    assert seen.of("kube_rdma_pod_rdma_objects", pod="train-0", device="mlx5_0") == [7]
    assert seen.of("kube_rdma_pod_rdma_objects_limit", pod="train-0", device="mlx5_0") == [9]
    assert sorted(seen.of("kube_rdma_card_healthy")) == [0, 1]
    types = {family.name: str(family.kind) for family in of_agents}
    for name, kind in types.items():
        assert f"# TYPE {name} {kind}\n" in seen.text


async def test_what_anybody_reads_names_no_pod_and_top_reads_all(world, tree):
    """The port has no authentication; the socket is the agent's container's own."""
    dependencies = exporting(world, tree, pods=False, uses=lambda: (USE,))
    async with world.serving(dependencies):
        await world.kubelet.until(lambda: world.kubelet.healthy(VKE) == 2)
        await world.kubelet.allocate(VKE, 1, place=TRAIN)
        await scrape(dependencies.metrics)  # GID tables are counted for the next one
        seen = await scrape(dependencies.metrics)
        when, everything = samples(await ask(tree.parent / "metrics.sock"))
    for word in (TRAIN.pod, TRAIN.container, TRAIN.namespace):
        assert f'"{word}"' not in seen.text
    without = {family.name for family in (*families.POD_FAMILIES, *families.CONTROLLER_FAMILIES)}
    made = {
        "kube_rdma_card_health_changes_total",
        families.PART_FAILURES.name,
        families.OBJECT_FAILURES.name,
    }
    durations = {one.name for one in (families.ATTACH, families.IPAM, families.LATE_BINDING)}
    every = {family.name for family in families.FAMILIES}
    assert seen.families | made | durations == every - without | made | durations
    assert when >= 0
    pods = {one.labels["pod"] for one in everything if "pod" in one.labels}
    assert pods == {TRAIN.pod}
    assert {one.name for one in everything} > {name for name, _ in seen.values}


async def test_a_scrape_that_fails_is_no_answer_of_nothing(tmp_path):
    async def hangs():
        raise Unavailable("a card hangs")

    path = tmp_path / "metrics.sock"
    with pytest.raises(Unavailable, match=r"No agent of this container answers at .*metrics.sock"):
        await ask(path)
    serving = asyncio.create_task(local.serve(path, hangs))
    await asyncio.sleep(0)
    with recorded(), pytest.raises(Unavailable, match="cannot read its counters now"):
        await ask(path)
    serving.cancel()


async def test_labels_are_those_of_the_table(world, tree):
    dependencies = exporting(world, tree)
    async with world.serving(dependencies):
        await world.kubelet.until(lambda: world.kubelet.healthy(VKE) == 2)
        await world.kubelet.allocate(VKE, 1, place=TRAIN)
        seen = await scrape(dependencies.metrics)
    labels = {family.name: set(family.labels) for family in families.FAMILIES}
    for name, pairs in seen.values:
        assert {label for label, _ in pairs} == labels[name]


async def test_without_the_kubelet_only_the_node_is_described(tree, tmp_path):
    """Nobody is said to hold nothing: the series of pods are missing, and one says so."""
    view = KubeletView(PodResources(tmp_path / "nobody.sock"))
    exporter = Exporter(MetricsSite((None, 1), pods=True), MetricsSources(view, sysfs=tree))
    seen = Scraped((await exporter.answer()).decode())
    assert seen.of("kube_rdma_scrape_holders_known") == [0]
    assert len(seen.of("node_infiniband_state_id")) == 2
    assert "kube_rdma_resource_shares_in_use" not in seen.families


async def test_only_namespaces_with_devices_that_moved_are_entered(tree):
    entered = []

    def read_inside(sandboxes):
        entered.extend(sandboxes)
        return (), len(entered)

    place = Sandbox(ContainerId("c"), PodName("default", "p"), "u", "/run/netns/p", 5)
    moved = Attachment(place, (Plan("net1", "n", None, (MoveRdma("mlx5_7", None),)),))
    other = Attachment(replace(place, netns_inode=6), ())
    sources = MetricsSources(
        KubeletView(None),
        lambda: [moved, other],
        sysfs=tree,
        read_inside=read_inside,
        clock=seconds(),
    )
    exporter = Exporter(MetricsSite((None, 1), pods=True), sources)
    exporter.looked({}, (), NamespaceMode.SHARED)
    await exporter.answer()
    assert entered == []
    exporter.looked({}, (), NamespaceMode.EXCLUSIVE)
    seen = Scraped((await exporter.answer()).decode())
    assert entered == [place]
    assert seen.of("kube_rdma_scrape_unread_pods") == [1]


def test_a_stopwatch_counts_what_fails_too():
    now = iter([0.0, 0.2, 1.0, 5.0])
    stopwatch = Stopwatch(lambda: next(now))
    with stopwatch.timed(families.ATTACH, "add"):
        pass
    with pytest.raises(Unavailable), stopwatch.timed(families.ATTACH, "add"):
        raise Unavailable("busy")
    by_outcome = {one.labels: one.total for one in stopwatch.durations}
    assert by_outcome == {("add", "ok"): 0.2, ("add", "unavailable"): 4.0}


async def test_whoever_asks_again_within_a_second_costs_nothing(tree):
    """The kernel is read once for many clients; afterwards it is read anew."""
    now, reads = 10.0, []

    def read_inside(sandboxes):
        reads.append(now)
        return (), 0

    sources = MetricsSources(
        KubeletView(None), sysfs=tree, read_inside=read_inside, clock=lambda: now
    )
    exporter = Exporter(MetricsSite((None, 1), pods=True), sources)
    answers = await asyncio.gather(*(exporter.answer() for _ in range(5)))
    now = 10.9
    answers.append(await exporter.answer())
    assert reads == [10.0]
    assert set(answers) == {answers[0]}
    now = 11.0
    await exporter.answer()
    assert reads == [10.0, 11.0]


async def test_a_port_that_another_program_has_is_told_until_it_is_free(tree):
    """The agent tries again by itself, and its report says it meanwhile."""
    changes, free = [], asyncio.Event()
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = other.getsockname()
        exporter = Exporter(MetricsSite(address), MetricsSources(KubeletView(None), sysfs=tree))
        exporter.changed = lambda: (changes.append(exporter.problem), free.set())
        for _ in range(2):
            with pytest.raises(Refused):
                await exporter.run()
        assert changes == [exporter.problem]
        assert exporter.problem.startswith(f"cannot listen on 127.0.0.1:{address[1]}")
    free.clear()
    async with beside(exporter.run()):
        await free.wait()
    assert changes[1:] == [""]
