"""How long the shim's OCI hooks take for a container, as a JSON list of milliseconds each.

    unshare -m python -m bench.shim_hooks SHIM FOLDER ROUNDS

In a mount namespace of its own, for a hook mounts what it makes: both hooks of a container that
holds a share, one after the other as a runtime runs them, each time for a bundle of its own.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from bench.shim import milliseconds
from kube_rdma.adapters.runtime.settings import NCCL_ENV
from kube_rdma.attach.rules.settings import settings_files
from kube_rdma.model.late_binding import UsedDevice


def round_ms(shim: str, folder: Path, number: int) -> float:
    """Both hooks for one container with files of its own."""
    bundle, settings = folder / f"bundle-{number}", folder / f"settings-{number}"
    root = bundle / "rootfs"
    (root / "etc/openmpi").mkdir(parents=True)
    settings.mkdir()
    used = (UsedDevice("mlx5_0", 1, "net1", gid_index=3),)
    files = {**settings_files(used), NCCL_ENV.name: NCCL_ENV.read_text()}
    for name, text in files.items():
        (settings / name).write_text(text)
    (root / "etc/nccl.conf").write_text("NCCL_DEBUG=WARN\n")
    (bundle / "config.json").write_text(json.dumps({"root": {"path": "rootfs"}}))
    state = folder / f"state-{number}"
    document = {"ociVersion": "1.2.0", "id": f"c{number}", "pid": os.getpid()}
    state.write_text(json.dumps({**document, "bundle": str(bundle)}))
    return sum(
        milliseconds(shim, {}, state, words)
        for words in (("hook", "memlock"), ("hook", "settings", str(settings)))
    )


if __name__ == "__main__":
    program, place, rounds = sys.argv[1:]
    print(json.dumps([round_ms(program, Path(place), n) for n in range(int(rounds))]))
