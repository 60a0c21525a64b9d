"""`kube-rdma agent` as the process that the container image runs."""

import asyncio
import json
import os
import shutil
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kube_rdma_testing.kubelet.kubelet import FakeKubelet

HCA = "rdma/hca"
COMMAND = [str(Path(sys.executable).with_name("kube-rdma")), "agent"]
PRIVILEGES = ["--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]


@asynccontextmanager
async def agent(*options, before=()):
    process = await asyncio.create_subprocess_exec(
        *before, *COMMAND, *map(str, options), stderr=asyncio.subprocess.PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def facts(process):
    status = Path(f"/proc/{process.pid}/status").read_text()
    return dict(line.split(":", 1) for line in status.splitlines())


def options(settings):
    return "--config", settings.config, "--kubelet-root", settings.kubelet_dir.parent


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_in_order(settings, number):
    """Exit code 0, our socket removed, the log in one form."""
    async with FakeKubelet(settings.kubelet_dir) as kubelet, agent(*options(settings)) as process:
        await kubelet.until(lambda: HCA in kubelet.devices)
        process.send_signal(number)
        _, log = await process.communicate()
        assert process.returncode == 0
        left = {path.name for path in settings.kubelet_dir.iterdir()}
        assert left == {"kubelet.sock", "kubelet_internal_checkpoint"}  # the kubelet's own
    lines = log.decode().splitlines()
    assert all(line.startswith("timestamp=20") for line in lines), log
    assert "event=started" in lines[0]
    assert f"event=stopping signal={number.name}" in lines[-2]
    assert lines[-1].endswith("event=stopped")


async def test_sigusr1_shows_threads_and_tasks_and_ends_nothing(settings):
    """Beside lines of its log, here as JSON and with those of debug."""
    json_lines = ("--log-format", "json", "--log-level", "debug")
    started = agent(*options(settings), *json_lines)
    async with FakeKubelet(settings.kubelet_dir) as kubelet, started as process:
        await kubelet.until(lambda: HCA in kubelet.devices)
        process.send_signal(signal.SIGUSR1)
        seen = b""
        while b"_Plugin._wait" not in seen:
            seen += await process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        _, rest = await process.communicate()
    assert process.returncode == 0
    assert b"Current thread 0x" in seen
    logged = [json.loads(line) for line in seen.splitlines() if line.startswith(b"{")]
    assert {"started", "node looked at"} <= {line["event"] for line in logged}
    assert json.loads(rest.splitlines()[-1])["event"] == "stopped"


@pytest.mark.skipif(os.getuid() != 0, reason="only root has privileges to give up")
async def test_it_needs_no_privilege(settings):
    """Root without any capability, as the example's DaemonSet runs it."""
    setpriv = shutil.which("setpriv")
    assert setpriv, "util-linux is among the packages of tools/bootstrap"
    started = agent(*options(settings), before=[setpriv, *PRIVILEGES])
    async with FakeKubelet(settings.kubelet_dir) as kubelet, started as process:
        await kubelet.until(lambda: HCA in kubelet.devices)
        assert int(facts(process)["CapEff"], base=16) == 0
        await kubelet.restart()
        await kubelet.until(lambda: HCA in kubelet.devices)


async def test_it_is_small_and_quiet(settings):
    """At most 70 MB resident; threads: the loop's, the watchdog's, two for what blocks."""
    async with FakeKubelet(settings.kubelet_dir) as kubelet, agent(*options(settings)) as process:
        await kubelet.until(lambda: HCA in kubelet.devices)
        found = facts(process)
    assert int(found["VmRSS"].split()[0]) <= 70_000
    assert int(found["Threads"]) <= 4


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (None, "config.json: there is no such file. Create it"),
        ('{"mode": "sriov"}', 'config.json:1:10: mode: "sriov" is not a value of this field.'),
    ],
)
async def test_a_refusal_is_a_sentence_and_exit_code_3(settings, config, sentence):
    settings.config.unlink()
    if config:
        settings.config.write_text(config)
    async with agent(*options(settings)) as process:
        _, log = await process.communicate()
    assert process.returncode == 3
    assert sentence in log.decode()
    assert "Traceback" not in log.decode()
