"""`python -m tests.kit.traced LAB`: which system calls agent and controller make, from their start.

It lays strace on the nodes, runs an installation whose programs are started by it (confined.py),
and adds the names to those in tests/data/seccomp. Commands that are run in these containers, those
of the doctor, are traced too.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from kube_base.errors import Refused
from kube_rdma_lab import cluster, lab, waiting
from tests.house.tree import ROOT
from tests.kit import confined

DATA = ROOT / "tests" / "data" / "seccomp"
PLACE = "/opt/traced"
LOADER = re.compile(r"(/\S+/ld-linux\S+|/\S+\.so\S*) \(")
CALL = re.compile(r"^\d+ +(?:<\.\.\. )?(\w+)(?:\(| resumed>)", re.MULTILINE)
COMMANDS = (
    ("sh", "-c", "cat /proc/1/status"),
    ("kube-rdma", "doctor", "-o", "json"),
    ("kube-rdma", "devices"),
    ("kube-rdma", "--version"),
)


def put_strace(running):
    """Copy this machine's strace and its libraries onto the nodes."""
    program = shutil.which("strace")
    if program is None:
        raise Refused("strace is not installed", remedy="Install it: apt-get install strace")
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    files = [Path(program), *(Path(path) for path in LOADER.findall(listed))]
    for node in (spec.name for spec in running.topology.nodes):
        cluster.shell(running, node, f"mkdir -p {PLACE}/out && chmod 777 {PLACE}/out")
        for path in files:
            target = f"{PLACE}/{path.name}"
            words = running.on_node(node, "sh", "-c", f"cat > {target} && chmod 755 {target}")
            with path.open("rb") as source:
                subprocess.run(words, stdin=source, check=True)


def strace(output):
    """The words that start a program below strace."""
    return [
        f"{PLACE}/ld-linux-x86-64.so.2",
        *("--library-path", PLACE),
        f"{PLACE}/strace",
        *("-f", "-qq", "-o", f"{PLACE}/out/{output}", "--"),
    ]


def below_strace(document):
    """A workload whose program strace starts."""
    if document["kind"] not in ("DaemonSet", "Deployment"):
        return document
    spec = document["spec"]["template"]["spec"]
    name = "agent" if document["kind"] == "DaemonSet" else "controller"
    spec.setdefault("volumes", []).append({"name": "traced", "hostPath": {"path": PLACE}})
    for container in spec["containers"]:
        container.setdefault("volumeMounts", []).append({"name": "traced", "mountPath": PLACE})
        container["command"] = [*strace(name), "kube-rdma"]
    return document


def calls(running, name):
    """The names of the calls in a program's traces on all nodes."""
    script = f"cat {PLACE}/out/{name}* 2>/dev/null || true"
    texts = (cluster.shell(running, spec.name, script) for spec in running.topology.nodes)
    return {call for text in texts for call in CALL.findall(text)}


def main(name):
    """Trace a day, and keep what it took."""
    running = lab.find(name)
    put_strace(running)
    DATA.mkdir(parents=True, exist_ok=True)
    with confined.installed(running, change=below_strace):
        confined.attached(running)
        confined.detached(running)
        confined.lent(running)
        pod = confined.pod_of(running, confined.AGENT, confined.NODE)
        for number, words in enumerate(COMMANDS):
            command = running.kubectl("exec", "-n", confined.SPACE, pod, "--")
            subprocess.run([*command, *strace(f"agent-{number}"), *words], check=False)
        waiting.run(running, running.kubectl("get", "pods", "-A"))
    for program in ("agent", "controller"):
        path = DATA / f"{program}.txt"
        before = set(path.read_text().split()) if path.exists() else set()
        after = before | calls(running, program)
        path.write_text("".join(f"{call}\n" for call in sorted(after)))
        print(f"{path}: {len(after)} system calls, {len(after - before)} of them new")


if __name__ == "__main__":
    main(sys.argv[1])
