"""The contract with the kubelet, and what happens when the kubelet does not keep to it."""

import asyncio
from pathlib import Path

import pytest
from grpclib import GRPCError, Status
from grpclib.client import Channel

from kube_base.errors import Refused, Unavailable
from kube_rdma.adapters.kubelet import device_plugin
from kube_rdma.adapters.kubelet.device_plugin import DevicePlugin
from kube_rdma.adapters.kubelet.proto import deviceplugin_v1beta1_pb2 as pb
from kube_rdma.adapters.kubelet.proto.deviceplugin_v1beta1_grpc import DevicePluginStub
from kube_rdma_testing.kubelet.kubelet import FakeKubelet
from tests.unit.adapters.kubelet.conftest import PATHS, Desk, make_offer, running

SOCKETS = Path("/proc/net/unix")  # those of this process's network, with their paths

HCA = "rdma/hca"
SOCKET = "kube-rdma-rdma_hca.sock"


class TestContract:
    async def test_1000_shares_are_offered(self, directory):
        async with FakeKubelet(directory) as kubelet, running(directory, make_offer()):
            await kubelet.until(lambda: kubelet.healthy(HCA) == 1000)
            assert kubelet.registrations == [HCA]
            assert (directory / SOCKET).is_socket()

    async def test_a_change_is_pushed_and_only_a_change(self, directory):
        async with FakeKubelet(directory) as kubelet, running(directory, make_offer()) as plugin:
            await kubelet.until(lambda: kubelet.states.get(HCA) == 1)
            plugin.publish(make_offer())
            await kubelet.allocate(HCA, 1)
            assert kubelet.states[HCA] == 1
            plugin.publish(make_offer(healthy=False))
            await kubelet.until(lambda: kubelet.states[HCA] == 2)
            assert kubelet.healthy(HCA) == 0
            assert len(kubelet.devices[HCA]) == 1000
            plugin.publish(make_offer(count=0))
            await kubelet.until(lambda: kubelet.states[HCA] == 3)
            assert kubelet.devices[HCA] == {}
            assert plugin.offer == make_offer(count=0)

    async def test_a_container_gets_every_card_read_and_write(self, directory):
        async with FakeKubelet(directory) as kubelet, running(directory, make_offer()):
            await kubelet.until(lambda: kubelet.healthy(HCA))
            response = await kubelet.allocate(HCA, 1)
            specs = [(d.container_path, d.host_path, d.permissions) for d in response.devices]
            assert specs == [(path, path, "rw") for path in PATHS]
            response.ClearField("devices")
            assert response == pb.ContainerAllocateResponse()

    async def test_a_restarted_container_gets_its_shares_again(self, directory):
        async with FakeKubelet(directory) as kubelet, running(directory, make_offer()):
            await kubelet.until(lambda: kubelet.healthy(HCA))
            first = await kubelet.allocate(HCA, 2)
            again = await kubelet.allocate(HCA, 2, tuple(sorted(kubelet.held(HCA))))
            assert again == first

    async def test_all_shares_can_be_given_away(self, directory):
        async with FakeKubelet(directory) as kubelet, running(directory, make_offer(20)):
            await kubelet.until(lambda: kubelet.healthy(HCA))
            for _ in range(20):
                await kubelet.allocate(HCA, 1)
            with pytest.raises(RuntimeError, match="available 0"):
                await kubelet.allocate(HCA, 1)

    async def test_a_refusal_reaches_the_pod_as_a_sentence(self, directory):
        async with FakeKubelet(directory) as kubelet, running(directory, make_offer(3)):
            await kubelet.until(lambda: kubelet.healthy(HCA))
            with pytest.raises(GRPCError) as caught:
                await kubelet.allocate(HCA, 1, ("other-1",))
            assert caught.value.status is Status.FAILED_PRECONDITION
            assert "no share is named other-1. Create the pod again." in str(caught.value)

    async def test_calls_that_are_not_offered_are_refused(self, directory):
        async with FakeKubelet(directory) as kubelet, running(directory, make_offer()):
            await kubelet.until(lambda: kubelet.healthy(HCA))
            channel = Channel(path=str(directory / SOCKET))
            stub = DevicePluginStub(channel)
            for call, request in (
                (stub.PreStartContainer, pb.PreStartContainerRequest()),
                (stub.GetPreferredAllocation, pb.PreferredAllocationRequest()),
            ):
                with pytest.raises(GRPCError) as caught:
                    await call(request)
                assert caught.value.status is Status.UNIMPLEMENTED
            channel.close()

    async def test_two_resources_live_side_by_side(self, directory):
        other = "rdma/hca_shared_devices_a"
        async with (
            FakeKubelet(directory) as kubelet,
            running(directory, make_offer()),
            running(directory, make_offer(5, resource=other)),
        ):
            await kubelet.until(lambda: kubelet.healthy(HCA) == 1000)
            await kubelet.until(lambda: kubelet.healthy(other) == 5)
            await kubelet.restart()
            await kubelet.until(lambda: kubelet.healthy(HCA) == 1000)
            await kubelet.until(lambda: kubelet.healthy(other) == 5)

    async def test_a_stop_removes_the_socket(self, directory):
        async with FakeKubelet(directory) as kubelet:
            async with running(directory, make_offer()):
                await kubelet.until(lambda: kubelet.healthy(HCA))
            await kubelet.until(lambda: kubelet.healthy(HCA) == 0)
            sockets = [path.name for path in directory.iterdir() if path.is_socket()]
            assert sockets == ["kubelet.sock"]

    async def test_a_kubelet_that_forgot_the_client_has_no_shares_after_the_end(self, directory):
        """A real one keeps a list that nobody withdraws, and pods are admitted to no plugin."""
        async with FakeKubelet(directory) as kubelet:
            async with running(directory, make_offer(12)):
                await kubelet.until(lambda: kubelet.healthy(HCA) == 12)
                kubelet.forget(HCA)
            await kubelet.until(lambda: kubelet.healthy(HCA) == 0)

    async def test_idle_there_is_no_timer(self, directory):
        """But for HTTP/2's own question after two hours whether the kubelet is still there."""
        async with FakeKubelet(directory) as kubelet, running(directory, make_offer()):
            await kubelet.until(lambda: kubelet.healthy(HCA))
            loop = asyncio.get_running_loop()
            await asyncio.wait_for(loop.create_task(asyncio.sleep(0)), None)
            timers = [t.when() - loop.time() for t in loop._scheduled if not t.cancelled()]
            assert all(seconds > 3600 for seconds in timers)


class TestFaults:
    @pytest.mark.parametrize("crash", [False, True])
    async def test_the_kubelet_restarts(self, directory, crash):
        async with FakeKubelet(directory) as kubelet, running(directory, make_offer()):
            for times in (1, 2, 3):
                await kubelet.until(lambda: kubelet.healthy(HCA) == 1000)
                await kubelet.allocate(HCA, 1)
                assert len(kubelet.registrations) >= times
                await kubelet.restart(crash=crash)

    async def test_a_change_while_the_kubelet_is_away_is_not_lost(self, directory):
        async with FakeKubelet(directory) as kubelet, running(directory, make_offer()) as plugin:
            await kubelet.until(lambda: kubelet.healthy(HCA))
            await kubelet.stop()
            plugin.publish(make_offer(7))
            await kubelet.start()
            await kubelet.until(lambda: kubelet.healthy(HCA) == 7)

    async def test_the_plugin_is_there_first(self, directory, recording):
        async with running(directory, make_offer()):
            await recording.wait_for("waiting for the kubelet")
            assert not list(directory.iterdir())
            async with FakeKubelet(directory) as kubelet:
                await kubelet.until(lambda: kubelet.healthy(HCA) == 1000)
                assert recording.events == ["waiting for the kubelet", "registered"]

    async def test_going_and_coming_is_told_once(self, directory, recording):
        async with FakeKubelet(directory) as kubelet, running(directory, make_offer()):
            await kubelet.until(lambda: kubelet.healthy(HCA))
            await kubelet.stop()
            await recording.wait_for("the kubelet is gone")
            await kubelet.start()
            await kubelet.until(lambda: kubelet.healthy(HCA))
            assert recording.events == [
                "registered",
                "the kubelet is gone",
                "the kubelet is back",
                "registered",
            ]

    async def test_a_stale_socket_of_a_dead_kubelet(self, directory, recording):
        """Nobody listens on it; the registration fails until a kubelet makes its own."""
        async with FakeKubelet(directory) as kubelet:
            await kubelet.stop(crash=True)
            async with running(directory, make_offer()):
                await recording.wait_for("registration failed, trying again")
                await kubelet.start()
                await kubelet.until(lambda: kubelet.healthy(HCA) == 1000)

    async def test_a_socket_that_an_earlier_process_left(self, directory):
        async with FakeKubelet(directory) as kubelet:
            async with running(directory, make_offer(1)):
                await kubelet.until(lambda: kubelet.healthy(HCA) == 1)
                (directory / SOCKET).rename(directory / "kept")
            (directory / "kept").rename(directory / SOCKET)
            async with running(directory, make_offer(2)):
                await kubelet.until(lambda: kubelet.healthy(HCA) == 2)

    async def test_our_socket_is_deleted_by_hand(self, directory):
        async with FakeKubelet(directory) as kubelet, running(directory, make_offer()):
            await kubelet.until(lambda: kubelet.healthy(HCA))
            (directory / SOCKET).unlink()
            await kubelet.until(lambda: len(kubelet.registrations) > 1 and kubelet.healthy(HCA))
            await kubelet.allocate(HCA, 1)

    async def test_the_kubelet_hangs_up(self, directory):
        async with FakeKubelet(directory) as kubelet, running(directory, make_offer()):
            await kubelet.until(lambda: kubelet.healthy(HCA))
            kubelet.hang_up(HCA)
            await kubelet.until(lambda: len(kubelet.registrations) > 1 and kubelet.healthy(HCA))

    async def test_the_registration_is_refused_at_first(self, directory, recording):
        kubelet = FakeKubelet(directory, refusals=3)
        async with kubelet, running(directory, make_offer()):
            await kubelet.until(lambda: kubelet.healthy(HCA) == 1000)
        failed = recording.of("registration failed, trying again")
        assert len(failed) == 3
        assert "context deadline exceeded" in failed[0]["reason"]

    async def test_a_name_that_the_kubelet_never_takes(self, directory, recording):
        async with FakeKubelet(directory) as kubelet:
            async with running(directory, make_offer(resource="hca")):
                await kubelet.until(lambda: len(kubelet.refused) == 2)
            assert kubelet.registrations == []
        assert "the ResourceName 'hca' is invalid" in recording.lines[0]["reason"]


class TestGivingUp:
    @pytest.mark.parametrize("kind", ["missing", "file"])
    async def test_there_is_no_directory(self, directory, kind):
        path = directory / "x"
        if kind == "file":
            path.touch()
        with pytest.raises(Refused, match="hostPath") as caught:
            await DevicePlugin(path, make_offer(), Desk().answers()).run()
        assert caught.value.where == str(path)

    async def test_our_socket_cannot_be_made(self, directory):
        (directory / SOCKET).touch()  # no socket, so it is not ours to remove
        async with FakeKubelet(directory):
            with pytest.raises(ExceptionGroup) as caught:
                await DevicePlugin(directory, make_offer(), Desk().answers()).run()
        (refused,) = caught.value.exceptions
        assert isinstance(refused, Refused)
        assert "writable" in refused.remedy

    async def test_the_directory_is_removed(self, directory, recording):
        task = asyncio.create_task(DevicePlugin(directory, make_offer(), Desk().answers()).run())
        await recording.wait_for("waiting for the kubelet")
        directory.rmdir()
        with pytest.raises(ExceptionGroup) as caught:
            await task
        (gone,) = caught.value.exceptions
        assert isinstance(gone, Unavailable)
        assert "was removed" in str(gone)

    async def test_a_socket_of_somebody_else_is_left_alone(self, directory):
        async with FakeKubelet(directory) as kubelet:
            async with running(directory, make_offer()):
                await kubelet.until(lambda: kubelet.healthy(HCA))
                # Replaced and stopped in one step, before the plugin can wake up.
                (directory / SOCKET).unlink()
                (directory / "kubelet.sock").rename(directory / SOCKET)
            assert (directory / SOCKET).is_socket()
            (directory / SOCKET).rename(directory / "kubelet.sock")


async def test_a_registration_without_an_answer_ends_nothing_else(directory, monkeypatch):
    """grpclib ends such a call by cancelling its task; the plugin's own waits go on after it."""
    monkeypatch.setattr(device_plugin, "_REGISTER_SECONDS", 0.5)

    class Silent(FakeKubelet):
        async def connect(self, resource, path, versions):
            called.set()
            await asyncio.Event().wait()

    called = asyncio.Event()
    silent = Silent(directory)
    await silent.start()
    async with running(directory, make_offer()):
        await called.wait()
        await silent.stop(crash=True)
        async with FakeKubelet(directory) as kubelet:
            await kubelet.until(lambda: kubelet.healthy(HCA) == 1000)
            registered = len(kubelet.registrations)
            kubelet.hang_up(HCA)  # so that the plugin waits for its next try, and has to end that
            await kubelet.until(lambda: len(kubelet.registrations) > registered)


@pytest.mark.parametrize("back", [False, True], ids=["first", "kubelet is back"])
@pytest.mark.parametrize("turns", range(40))
async def test_an_end_at_any_moment_leaves_no_socket_open(directory, turns, back):
    async with FakeKubelet(directory) as kubelet, running(directory, make_offer(count=2)):
        if back:
            await kubelet.until(lambda: kubelet.healthy(HCA) == 2)
            await kubelet.restart()
        for _ in range(turns):
            await asyncio.sleep(0)
    await none_open_in(directory)


@pytest.mark.parametrize("turns", range(12))
async def test_a_second_end_within_the_first_leaves_no_socket_open(directory, turns):
    async with FakeKubelet(directory) as kubelet:
        plugin = DevicePlugin(directory, make_offer(count=2), Desk().answers())
        task = asyncio.create_task(plugin.run())
        await kubelet.until(lambda: kubelet.healthy(HCA) == 2)
        task.cancel()
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await none_open_in(directory)


async def none_open_in(directory):
    """Wait until no socket is; an end is seen some turns of the loop later."""
    while open_in(directory):  # noqa: ASYNC110  what it looks at has no event
        await asyncio.sleep(0.005)


def open_in(directory):
    return f"{directory}/" in SOCKETS.read_text()
