"""The calls that an offer asks the kubelet for, and what an offer that changes brings about."""

import pytest
from grpclib import GRPCError, Status

from kube_base.errors import Unavailable
from kube_rdma.adapters.kubelet.device_plugin import Choice
from kube_rdma.model.pools import Share
from kube_rdma_testing.kubelet.devices import ContainerPlace
from kube_rdma_testing.kubelet.kubelet import FakeKubelet
from tests.unit.adapters.kubelet.conftest import Desk, make_offer, running

HCA = "rdma/hca"
POD = ContainerPlace("pod")


async def test_the_plugin_chooses_among_what_is_free(directory):
    desk = Desk()
    async with (
        FakeKubelet(directory) as kubelet,
        running(directory, make_offer(5, prefers=True), desk.answers()),
    ):
        await kubelet.until(lambda: kubelet.healthy(HCA) == 5)
        desk.chosen = ("hca-3", "hca-77")
        await kubelet.allocate(HCA, 2, place=POD)
        assert kubelet.held(HCA) == {"hca-3", "hca-0"}
        assert desk.choices == [Choice(tuple(f"hca-{n}" for n in range(5)), (), 2)]
        desk.chosen = ("hca-3", "hca-4")
        await kubelet.allocate(HCA, 1)
        assert kubelet.held(HCA) == {"hca-3", "hca-0", "hca-4"}


async def test_shares_of_an_init_container_must_be_among_the_chosen(directory):
    desk = Desk()
    init = ContainerPlace("pod", "init")
    async with (
        FakeKubelet(directory) as kubelet,
        running(directory, make_offer(5, prefers=True), desk.answers()),
    ):
        await kubelet.until(lambda: kubelet.healthy(HCA) == 5)
        kubelet.store.init.add(init)
        desk.chosen = ("hca-2",)
        await kubelet.allocate(HCA, 1, place=init)
        desk.chosen = ("hca-4", "hca-2")
        await kubelet.allocate(HCA, 2, place=POD)
        assert desk.choices[1].must == ("hca-2",)
        assert set(desk.choices[1].available) == {f"hca-{n}" for n in range(5)}
        assert kubelet.store.holdings[POD, HCA] == ("hca-2", "hca-4")


async def test_shares_near_to_the_chosen_numa_node_come_first(directory):
    desk = Desk()
    shares = tuple(Share(f"hca-{n}", True, (n % 2,)) for n in range(6))
    async with (
        FakeKubelet(directory) as kubelet,
        running(directory, make_offer(shares=shares, prefers=True), desk.answers()),
    ):
        await kubelet.until(lambda: kubelet.healthy(HCA) == 6)
        desk.chosen = ("hca-0", "hca-5")
        await kubelet.allocate(HCA, 1, place=ContainerPlace("near", affinity=(1,)))
        assert desk.choices[-1].available == ("hca-1", "hca-3", "hca-5")
        assert kubelet.held(HCA) == {"hca-5"}
        await kubelet.allocate(HCA, 2, place=ContainerPlace("all", affinity=(1,)))
        assert len(desk.choices) == 1, "there is nothing to choose"
        assert kubelet.held(HCA) == {"hca-1", "hca-3", "hca-5"}
        desk.chosen = ("hca-4",)
        await kubelet.allocate(HCA, 1, place=ContainerPlace("far", affinity=(1,)))
        assert kubelet.held(HCA) == {"hca-1", "hca-3", "hca-5", "hca-4"}


async def test_a_refused_preference_fails_the_pod(directory):
    class Sulking(Desk):
        async def prefer(self, choice):
            raise Unavailable("Nothing is known of the cards yet.")

    async with (
        FakeKubelet(directory) as kubelet,
        running(directory, make_offer(5, prefers=True), Sulking().answers()),
    ):
        await kubelet.until(lambda: kubelet.healthy(HCA) == 5)
        with pytest.raises(GRPCError, match="Nothing is known"):
            await kubelet.allocate(HCA, 1)
        assert kubelet.held(HCA) == set()


async def test_a_container_waits_until_it_may_start(directory):
    desk = Desk()
    async with (
        FakeKubelet(directory) as kubelet,
        running(directory, make_offer(5, gated=True), desk.answers()),
    ):
        await kubelet.until(lambda: kubelet.healthy(HCA) == 5)
        await kubelet.allocate(HCA, 2, place=POD)
        assert desk.starts == []
        desk.refusal = Unavailable("The network of this pod is not attached yet.")
        with pytest.raises(GRPCError, match="not attached yet") as caught:
            await kubelet.start_container(POD)
        assert caught.value.status is Status.UNAVAILABLE
        assert kubelet.started == []
        desk.refusal = None
        await kubelet.start_container(POD)
        await kubelet.start_container(POD)
        assert kubelet.started == [POD, POD]
        assert desk.starts == [("hca-0", "hca-1")] * 3
        assert kubelet.held(HCA) == {"hca-0", "hca-1"}


async def test_no_container_starts_without_its_plugin(directory):
    async with FakeKubelet(directory) as kubelet:
        async with running(directory, make_offer(gated=True), Desk().answers()):
            await kubelet.until(lambda: kubelet.healthy(HCA))
            await kubelet.allocate(HCA, 1, place=POD)
        await kubelet.until(lambda: not kubelet.healthy(HCA))
        assert not kubelet.devices[HCA], "the last list was an empty one"
        with pytest.raises(RuntimeError, match="has been stopped"):
            await kubelet.start_container(POD)


async def test_cdi_devices_are_named(directory):
    desk = Desk(paths=(), cdi=("kube-rdma.io/hca=0000_81_00.0-0-x7",))
    async with FakeKubelet(directory) as kubelet, running(directory, make_offer(), desk.answers()):
        await kubelet.until(lambda: kubelet.healthy(HCA))
        response = await kubelet.allocate(HCA, 1)
        assert [device.name for device in response.cdi_devices] == list(desk.cdi)
        assert not response.devices


class TestNews:
    @pytest.mark.parametrize("change", [{"prefers": True}, {"gated": True}])
    async def test_other_options_are_another_registration(self, directory, change):
        desk = Desk()
        async with (
            FakeKubelet(directory) as kubelet,
            running(directory, make_offer(), desk.answers()) as plugin,
        ):
            await kubelet.until(lambda: kubelet.healthy(HCA))
            plugin.publish(make_offer(7, **change))
            await kubelet.until(lambda: kubelet.healthy(HCA) == 7)
            await kubelet.allocate(HCA, 1, place=POD)
            await kubelet.start_container(POD)
            assert len(kubelet.registrations) >= 2
            assert bool(desk.choices) == change.get("prefers", False)
            assert bool(desk.starts) == change.get("gated", False)

    async def test_an_equal_offer_is_told_again_on_demand(self, directory):
        async with FakeKubelet(directory) as kubelet, running(directory, make_offer(3)) as plugin:
            await kubelet.until(lambda: kubelet.states.get(HCA) == 1)
            plugin.publish(make_offer(3), again=True)
            await kubelet.until(lambda: kubelet.states[HCA] == 2)
            assert kubelet.registrations == [HCA]
            assert kubelet.healthy(HCA) == 3

    async def test_it_begins_anew_on_demand(self, directory):
        async with FakeKubelet(directory) as kubelet, running(directory, make_offer(3)) as plugin:
            for times in (1, 2, 3):
                await kubelet.until(
                    lambda times=times: (
                        len(kubelet.registrations) >= times and kubelet.healthy(HCA) == 3
                    )
                )
                plugin.register_again()

    async def test_after_a_restart_holdings_are_kept_and_nothing_is_given(self, directory):
        async with FakeKubelet(directory) as kubelet:
            async with running(directory, make_offer(3)):
                await kubelet.until(lambda: kubelet.healthy(HCA) == 3)
                await kubelet.allocate(HCA, 2, place=POD)
            await kubelet.restart()
            assert kubelet.held(HCA) == {"hca-0", "hca-1"}
            with pytest.raises(RuntimeError, match="no healthy devices"):
                await kubelet.allocate(HCA, 1)
            async with running(directory, make_offer(3)):
                await kubelet.until(lambda: kubelet.healthy(HCA) == 3)
                await kubelet.allocate(HCA, 1)
                assert kubelet.held(HCA) == {"hca-0", "hca-1", "hca-2"}
