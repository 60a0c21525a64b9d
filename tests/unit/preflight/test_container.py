"""What the two init containers of a pod do: measure as planned, then end as the verdict says."""

import asyncio
import time

import pytest
from click.testing import CliRunner

from kube_base.frozen import replace
from kube_rdma.cli.preflight import preflight
from kube_rdma.model import preflight as model
from kube_rdma.model.verify import PodDevice
from kube_rdma.preflight import rules
from kube_rdma.preflight.container import Files, judged, measure
from kube_rdma.preflight.documents import plan_text, verdict_text
from kube_rdma_testing.kernel.gid_trees import Entry, PortFiles, Tree, mapped

NUMBER = "0123456789abcdef"
TABLE = """\
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      5000             97.89              {figure}             0.186693
"""


def run(turn=0, rail=0, client=True, latency=False):
    device = PodDevice(f"mlx5_{rail}", 1, 3)
    return model.Run(turn, rail, latency, client, device, "10.1.0.2", 18515 + rail)


@pytest.fixture
def pod(tmp_path, monkeypatch):
    """The pod's folder, and perftest as a script; what it was called with is in `called`."""
    programs = tmp_path / "bin"
    programs.mkdir()
    folder = tmp_path / "preflight"
    folder.mkdir()

    def perftest(script):
        for name in ("ib_write_bw", "ib_write_lat"):
            program = programs / name
            program.write_text(f"#!/bin/sh\necho $0 $* >> {tmp_path}/called\n{script}\n")
            program.chmod(0o755)

    def plan(*runs):
        text = plan_text(model.GangPlan(NUMBER, 2, runs))
        (folder / "plan").write_text(text)

    def verdict(well, why="all is well"):
        text = verdict_text(model.GangVerdict(NUMBER, well, why))
        (folder / "verdict").write_text(text)

    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    for name, value in {"perftest": perftest, "plan": plan, "verdict": verdict}.items():
        setattr(Pod, name, staticmethod(value))
    cards = tmp_path / "cards"
    for rail in range(4):
        port = cards / f"mlx5_{rail}/ports/1"
        port.mkdir(parents=True)
        (port / "rate").write_text("100 Gb/sec (4X EDR)\n")
        (port.parents[1] / "device").mkdir()
    return Pod(Files(folder, cards), tmp_path)


class Pod:
    def __init__(self, files, place):
        self.files, self._place = files, place

    @property
    def called(self):
        at = self._place / "called"
        lines = at.read_text().splitlines() if at.exists() else ()
        return [line.partition("bin/")[2] for line in lines]


def shown(figure):
    return f"cat <<'E'\n{TABLE.format(figure=figure)}E"


async def test_a_client_reports_the_figure_that_perftest_prints(pod):
    """A direction of the two that perftest adds up."""
    pod.perftest(shown("186.22"))
    pod.plan(run())
    ended = await measure(pod.files, 5)
    assert (ended.code, ended.message) == (0, "0 0 bw 93.110000 of 100.000000;")
    assert pod.called == [
        "ib_write_bw -F -d mlx5_0 -i 1 -p 18515 -x 3 --report_gbits -q 1 -b 10.1.0.2"
    ]


async def test_a_pod_on_the_node_s_network_finds_its_gid_itself(pod, tmp_path, monkeypatch):
    """For a port that nccl_env.sh does not list, perftest chooses one."""
    ports = {"1": PortFiles({"5": Entry(mapped("10.0.0.1"))})}
    Tree({"mlx5_0": ports}, own4=("10.0.0.1",)).write(tmp_path / "root")
    monkeypatch.setenv("NCCL_ENV_ROOT", str(tmp_path / "root"))
    pod.perftest(shown("186.22"))
    pod.plan(*(replace(run(rail=n), device=PodDevice(f"mlx5_{n}")) for n in range(2)))
    assert (await measure(pod.files, 5)).code == 0
    of_rail = {line.split()[3]: "-x 5" in line for line in pod.called}
    assert of_rail == {"mlx5_0": True, "mlx5_1": False}


async def test_a_server_reports_nothing_and_dials_nobody(pod):
    pod.perftest("exit 0")
    pod.plan(run(client=False))
    assert await measure(pod.files, 5) == await measure(pod.files, 5)
    assert (await measure(pod.files, 5)).message == ""
    assert all("10.1.0.2" not in line for line in pod.called)


async def test_a_client_tries_until_its_server_listens(pod):
    pod.perftest(
        'if [ $(wc -l < "$(dirname $0)/../called") -lt 3 ]; then'
        ' echo "Couldn\'t connect to 10.1.0.2:18515"; exit 1; fi\n' + shown("186.22")
    )
    pod.plan(run())
    assert "93.11" in (await measure(pod.files, 5)).message
    assert len(pod.called) == 3


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'Completion with error at client'; exit 1", "Completion with error at client"),
        ("echo no table", "perftest printed no result"),
        ('echo "Couldn\'t connect to x"; exit 1', "connect to x"),
        ("exec sleep 60", "it took longer than 1 s"),  # and its server as long
        ("printf '\\033[2J'; exit 1", "?[2J"),
        ("yes | head -c 10000000; exit 1", "y y"),
        (shown("nan"), "its average is nan"),
        (shown("0.00").replace("0.186693", "0.0"), "it prints 0 Gb/s"),  # no measurement
    ],
)
async def test_a_run_without_a_figure_says_why_and_the_container_still_ends_well(pod, script, said):
    """The controller judges: a pod that fails by itself would tell nobody of the others."""
    pod.perftest(script)
    pod.plan(run())
    ended = await measure(pod.files, 5, seconds=1, head_start=0)
    assert ended.code == 0
    assert ended.message.startswith("0 0 bw failed: ")
    assert said in ended.message
    assert rules.results(ended.message).keys() == {(0, 0, False)}


async def test_rails_measure_at_the_same_time_and_turns_one_after_the_other(pod):
    pod.perftest(f"sleep 0.5; {shown('1.0')}")
    pod.plan(*(run(0, rail) for rail in range(4)), *(run(1, rail) for rail in range(4)))
    began = time.monotonic()
    ended = await measure(pod.files, 5)
    assert len(ended.message.splitlines()) == 8
    assert time.monotonic() - began < 8 * 0.5
    assert [line.split()[2] for line in ended.message.splitlines()][:1] == ["bw"]


async def test_a_run_that_failed_in_passing_is_tried_once_more(pod):
    pod.perftest(
        'if [ $(wc -l < "$(dirname $0)/../called") -lt 2 ]; then'
        " echo 'Completion with error at client'; exit 1; fi\n" + shown("186.22")
    )
    pod.plan(run())
    assert "93.11" in (await measure(pod.files, 5)).message


async def test_a_server_is_there_again_after_a_stranger_has_called(pod):
    pod.perftest('if [ $(wc -l < "$(dirname $0)/../called") -lt 3 ]; then exit 1; fi')
    pod.plan(run(client=False))
    assert (await measure(pod.files, 5)).code == 0
    assert len(pod.called) == 3


@pytest.mark.parametrize(("end", "calls"), [("exec sleep 60", 1), ("exit 1", 2)])
async def test_a_server_ends_soon_after_its_client_gave_up(pod, end, calls):
    """perftest does not see that its peer was killed; a client that failed tries once more."""
    pod.perftest(f"echo ' remote address: LID 0000'; {end}")
    pod.plan(run(client=False))
    began = time.monotonic()
    assert (await measure(pod.files, 5, seconds=0.5)).code == 0
    assert time.monotonic() - began < 30  # of 60 and more in which a client may come
    assert len(pod.called) == calls


async def test_a_server_awaits_a_client_that_failed_no_longer_than_it_may_try_again(pod):
    """Its run ended early with an error that makes a second try pointless."""
    pod.perftest(
        '[ $(wc -l < "$(dirname $0)/../called") -gt 1 ] && exec sleep 60\n'
        "echo ' remote address: LID 0000'; exit 1"
    )
    pod.plan(run(client=False))
    began = time.monotonic()
    assert (await measure(pod.files, 5, seconds=1)).code == 0
    assert time.monotonic() - began < 30  # of 60 and more in which a client may come
    assert len(pod.called) > 1


async def test_a_stranger_who_connects_and_says_nothing_does_not_keep_the_server(pod):
    """perftest has closed its listener then; the server begins anew for the client."""
    pod.perftest('[ $(wc -l < "$(dirname $0)/../called") -gt 1 ] || exec sleep 60')
    pod.plan(run(client=False))
    began = time.monotonic()
    assert (await measure(pod.files, 5, seconds=1)).code == 0
    assert time.monotonic() - began < 30
    assert len(pod.called) == 2


async def test_a_soft_device_is_timed_by_the_whole_program(pod, tmp_path):
    """Where perftest's clocks do not agree it prints a bandwidth of 0."""
    pod.perftest("sleep 0.1; " + shown("0.000000"))
    pod.plan(run())
    (tmp_path / "cards/mlx5_0/device").rmdir()
    (result,) = rules.results((await measure(pod.files, 5)).message).values()
    assert result.line_gbps is None
    assert 0 < result.figure < 65536 * 5000 * 8e-9 / 0.1
    assert "-u 18 -b -n 400" in pod.called[0]


async def test_turns_begin_at_the_same_time_in_all_pods_where_cards_are_shared(pod):
    pod.perftest(shown("1.0"))
    text = plan_text(model.GangPlan(NUMBER, 2, (run(0), run(1)), 1))
    (pod.files.folder / "plan").write_text(text)
    began = time.monotonic()
    await measure(pod.files, 5)
    assert time.monotonic() - began >= 1.0


async def test_a_turn_that_fails_ends_when_it_ends_for_all(pod):
    """A server whose client never comes waits for its part of the time, and then goes on."""
    pod.perftest("case $* in *10.1.0.2) " + shown("2.0") + "\n;; *) exec sleep 60;; esac")
    pod.plan(run(0, client=False), run(1))
    began = time.monotonic()
    assert (await measure(pod.files, 5, seconds=0.5, head_start=0)).message.startswith("1 0 bw 1.0")
    assert time.monotonic() - began >= 1.0


async def test_a_program_that_is_missing_is_a_failed_run(pod):
    pod.plan(run())
    assert "failed to run command ‘ib_write_bw’" in (await measure(pod.files, 5)).message


async def test_without_a_plan_the_pod_fails_and_says_where_to_look(pod):
    ended = await measure(pod.files, 0.3)
    assert ended.code == 1
    assert "peers are missing. See the Events of the pod." in ended.message


@pytest.mark.parametrize(("well", "code"), [(True, 0), (False, model.NOT_WELL)])
async def test_the_verdict_decides(pod, well, code):
    waiting = asyncio.create_task(judged(pod.files, 5))
    await asyncio.sleep(0)
    pod.verdict(well, "look at node-2 mlx5_0")
    assert await waiting == await judged(pod.files, 5)
    assert ((await judged(pod.files, 5)).code, (await judged(pod.files, 5)).message) == (
        code,
        "look at node-2 mlx5_0",
    )


async def test_without_a_verdict_nothing_starts(pod):
    assert (await judged(pod.files, 0.3)).code == 1


@pytest.mark.parametrize(("well", "code"), [(True, 0), (False, model.NOT_WELL)])
async def test_a_pod_whose_sandbox_is_new_is_not_measured_again(pod, well, code):
    """Its peers run already."""
    pod.perftest(shown("1.0"))
    pod.plan(run())
    pod.verdict(well)
    assert (await measure(pod.files, 5)).code == code
    assert pod.called == []


@pytest.mark.parametrize(("step", "code"), [("measure", 0), ("verdict", 42)])
def test_the_command_writes_the_termination_message(pod, tmp_path, step, code):
    pod.perftest(shown("186.22"))
    pod.plan(run())
    if step == "verdict":
        pod.verdict(False, "look at node-2")
    log = tmp_path / "log"
    words = [step, "--folder", str(pod.files.folder), "--message", str(log), "--wait", "5"]
    done = CliRunner().invoke(preflight, words)
    assert done.exit_code == code
    assert log.read_text() in done.output
    assert log.read_text().startswith(("0 0 bw ", "look at node-2"))
