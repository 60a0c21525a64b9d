"""The example of the package's README is run as it stands, against a server."""

import asyncio
import os
import re
import sys
from pathlib import Path

import kube_client
from tests.unit.kube_client.test_connect import Server, answer

README = (Path(kube_client.__file__).parent / "README.md").read_text()
POD = {"metadata": {"name": "train", "namespace": "ml"}, "spec": {"nodeName": "node-1"}}


async def test_the_example_lists_pods_in_15_lines(tmp_path):
    """Blank lines apart; as a program of its own, which finds its cluster by KUBECONFIG."""
    (code,) = re.findall(r"(?s)```python\n(.*?)```", README)
    assert len([line for line in code.splitlines() if line]) <= 15
    server = Server(answer({"metadata": {"resourceVersion": "1"}, "items": [POD]}))
    async with server.running(tmp_path) as config:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            code,
            env={**os.environ, "KUBECONFIG": str(config)},
            stdout=asyncio.subprocess.PIPE,
        )
        printed, _ = await process.communicate()
    assert (process.returncode, printed.decode()) == (0, "ml train node-1\n")
    assert "\r\nUser-Agent: where-pods-are/1.0\r\n" in server.heads[0]
