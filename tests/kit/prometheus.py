"""The real Prometheus with its promtool: Debian's package, unpacked beside the parts of the lab."""

import contextlib
import json
import socket
import subprocess
import sys
import urllib.parse
from pathlib import Path

import yaml

from kube_rdma_lab.build import debian
from kube_rdma_lab.build.parts import open_store

SUITE, PACKAGE = "bookworm", "prometheus"
ADDRESS = "127.0.0.1:9090"  # of a network of its own, so that runs side by side do not meet


def build(store):
    """The folder with `prometheus` and `promtool`."""

    def make(folder, shell):
        archive = debian.Archive(SUITE, folder / "apt")
        archive.refresh(shell)
        files = archive.download([archive.show(PACKAGE)], folder, shell)
        debian.unpack_packages(files, folder / "all", shell)
        (folder / "bin").mkdir()
        for name in ("prometheus", "promtool"):
            (folder / "all/usr/bin" / name).rename(folder / "bin" / name)
        shell.run(["rm", "-r", folder / "all", folder / "apt", *files])

    return store.get(PACKAGE, {"suite": SUITE, "package": PACKAGE}, make) / "bin"


@contextlib.contextmanager
def programs():
    """That folder; safe from pruning meanwhile."""
    with open_store() as store:
        yield build(store)


def check(program, what, path):
    """What promtool says of a file of rules or metrics, and whether it is content."""
    arguments = ["check", what] + [path] * (what == "rules")
    with path.open() as text:
        outcome = subprocess.run(
            [program / "promtool", *arguments],
            stdin=text,
            capture_output=True,
            text=True,
            check=False,
        )
    return outcome.returncode, outcome.stdout + outcome.stderr


GET = "import sys, urllib.request as r; sys.stdout.write(r.urlopen(sys.argv[1]).read().decode())"


def get(url, inside=()):
    """What a GET answers, None where nobody does; `inside` are words that enter a network."""
    words = [*inside, sys.executable, "-c", GET, url]
    outcome = subprocess.run(words, capture_output=True, text=True, check=False)
    return None if outcome.returncode else outcome.stdout


class Prometheus:
    """A running server that scrapes every second; its answers as JSON, none while it starts.

    `inside` are words that enter its network.
    """

    def __init__(self, inside=(), address=ADDRESS):
        self._inside = inside
        self._address = address

    def _get(self, path):
        answer = get(f"http://{self._address}{path}", self._inside)
        return json.loads(answer)["data"] if answer else {}

    def values(self, query):
        """The values of a query, by pod and device."""
        result = self._get(f"/api/v1/query?query={urllib.parse.quote(query)}").get("result", ())
        return {
            (one["metric"].get("pod"), one["metric"].get("device")): float(one["value"][1])
            for one in result
        }

    def answer(self, query, when):
        """Labels and value of each series of a query at a time."""
        words = urllib.parse.urlencode({"query": query, "time": when})
        result = self._get(f"/api/v1/query?{words}")["result"]
        return [(one["metric"], float(one["value"][1])) for one in result]

    @property
    def is_ready(self):
        """Whether it answers queries."""
        return get(f"http://{self._address}/-/ready", self._inside) is not None

    def firing(self):
        """Names of alerts that fire, with the pod that they are about."""
        return {
            (one["labels"]["alertname"], one["labels"].get("pod"))
            for one in self._get("/api/v1/alerts").get("alerts", ())
            if one["state"] == "firing"
        }


@contextlib.contextmanager
def running(program, folder: Path, targets, groups, inside=()):
    """Prometheus with these rules, which it looks at each second and believes at once."""
    believed = [
        {**group, "interval": "1s", "rules": [{**rule, "for": "0s"} for rule in group["rules"]]}
        for group in groups
    ]
    (folder / "rules.yaml").write_text(json.dumps({"groups": believed}))
    job = {
        "job_name": "kube-rdma",
        "honor_labels": True,
        "static_configs": [{"targets": list(targets)}],
    }
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(folder / "rules.yaml")],
        "scrape_configs": [job],
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [
                *inside,
                program / "prometheus",
                f"--config.file={folder}/prometheus.yaml",
                f"--storage.tsdb.path={folder}/data",
                f"--web.listen-address={ADDRESS}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        yield Prometheus(inside)
    finally:
        process.terminate()
        process.wait()


def fill(program, folder: Path, text):
    """Let the server of a folder have series that were recorded before, in OpenMetrics' text."""
    (folder / "series.txt").write_text(text)
    (folder / "prometheus.yaml").write_text("{}")
    words = ("tsdb", "create-blocks-from", "openmetrics", folder / "series.txt", folder / "data")
    subprocess.run([program / "promtool", *words], check=True, capture_output=True)


@contextlib.contextmanager
def running_on_file(program, folder: Path):
    """Prometheus over the series of a folder, which scrapes nobody; it answers when this yields."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [
                program / "prometheus",
                f"--config.file={folder}/prometheus.yaml",
                f"--storage.tsdb.path={folder}/data",
                "--storage.tsdb.retention.time=100y",
                f"--web.listen-address={address}",
            ],
            stdout=log,
            stderr=log,
        )
    server = Prometheus(address=address)
    try:
        while not server.is_ready:
            assert process.poll() is None, (folder / "log").read_text()
        yield server
    finally:
        process.terminate()
        process.wait()
