"""Backups of a lab's cluster: etcd's database, taken and restored as an administrator does.

    save     etcd stops for a moment, so that its file is whole
    restore  etcd and its readers stop, etcdutl makes a data folder of the backup, all start again

A `bump` is added to the backup's revision, and should lead past all that clients have seen. Older
revisions are then compacted, as Kubernetes' documents want it (etcdutl snapshot restore
--bump-revision --mark-compacted). With 0, the default, neither happens.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from kube_base.errors import Unavailable
from kube_rdma_lab import waiting
from kube_rdma_lab.lab import Lab
from kube_rdma_lab.switch import turn

_READERS = ("kube-scheduler", "kube-controller-manager", "kube-apiserver")
_DATABASE = Path("member", "snap", "db")


def save(lab: Lab, backup: Path) -> None:
    """Copy the lab's etcd database to the file `backup`, and wait until the API server is ready.

    Raise Unavailable if the supervisor or the API server does not answer.
    """
    turn(lab.home, "end", "etcd")
    try:
        shutil.copyfile(lab.home / "etcd" / _DATABASE, backup)
    finally:
        turn(lab.home, "start", "etcd")
    _until_ready(lab)


def restore(lab: Lab, backup: Path, *, bump: int = 0) -> None:
    """Restore the lab's etcd from a backup, and wait until the API server is ready.

    Raise Unavailable if etcdutl fails, or the supervisor or the API server does not answer.
    """
    for program in (*_READERS, "etcd"):
        turn(lab.home, "end", program)
    data = lab.home / "etcd"
    shutil.rmtree(data)
    words = [f"{lab.state.binaries}/etcdutl", "snapshot", "restore", str(backup)]
    words += ["--skip-hash-check", f"--data-dir={data}"]
    if bump:
        words += [f"--bump-revision={bump}", "--mark-compacted"]
    result = subprocess.run(words, capture_output=True, text=True, check=False)
    if result.returncode:
        raise Unavailable(f"etcdutl failed: {result.stderr.strip()}")
    for program in ("etcd", *reversed(_READERS)):
        turn(lab.home, "start", program)
    _until_ready(lab)


def _until_ready(lab: Lab) -> None:
    words = lab.kubectl("get", "--raw", "/readyz")
    waiting.until(lab, "the API server", lambda: waiting.run(lab, words) == "ok")
