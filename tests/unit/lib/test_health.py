"""What a probe and a person read of a program's health."""

import asyncio
import http.client

import pytest

from kube_base.errors import Unavailable
from kube_rdma.lib.health import HealthChecks
from tests.kit.beside import beside


async def test_whoever_answers_lives():
    assert await HealthChecks({}).livez() == b"[+]event-loop ok\nlivez check passed\n"


async def test_each_check_has_a_line_and_one_that_fails_fails_all(recording):
    why = ["The kubelet\x1b[2J is away.", "It was so before."]
    health = HealthChecks({"kubelet": lambda: why, "networks": tuple})
    text = "[-]kubelet: The kubelet?[2J is away. It was so before.\n[+]networks ok\n"
    for _ in range(2):
        with pytest.raises(Unavailable) as failed:
            await health.readyz()
        assert str(failed.value) == f"{text}readyz check failed"
    why.clear()
    for _ in range(2):
        assert await health.readyz() == b"[+]kubelet ok\n[+]networks ok\nreadyz check passed\n"
    assert recording.events == ["not ready", "ready"], "changes alone are logged"


async def test_a_probe_gets_both_by_http(recording):
    """And nothing else: the port is for the kubelet."""

    def ask(path):
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("GET", path, headers={"Connection": "close"})
        answer = connection.getresponse()
        return answer.status, answer.read()

    health = HealthChecks({"kubelet": lambda: ["It is away."]})
    async with beside(health.run(("127.0.0.1", 0))):
        await recording.wait_for("health served")
        (line,) = recording.of("health served")
        port = line["port"]
        answers = [await asyncio.to_thread(ask, path) for path in ("/livez", "/readyz", "/metrics")]
    assert answers == [
        (200, b"[+]event-loop ok\nlivez check passed\n"),
        (503, b"[-]kubelet: It is away.\nreadyz check failed\n"),
        (404, b"there is nothing but /livez and /readyz\n"),
    ]
