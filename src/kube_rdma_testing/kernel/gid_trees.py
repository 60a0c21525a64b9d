"""Made-up sysfs trees for shell scripts that set NCCL's variables, and what sources such a script.

A tree is plain data: devices with ports and GIDs, interfaces, addresses. What stands in a file is
any text that a kernel, or a test, may leave there; None is a file that is not there.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

# Texts of users, one of them with such a script. They may lie beside the checkout, for they are not
# ours to copy.
SEEDS = Path(os.environ.get("KUBE_RDMA_SEEDS", Path.cwd().parent / "shared/seeds"))
SHELLS = [name for name in ("dash", "bash", "busybox") if shutil.which(name)]
VARIABLES = (
    *("NCCL_IB_HCA", "NCCL_IB_GID_INDEX", "NCCL_IB_ADDR_RANGE", "NCCL_SOCKET_IFNAME"),
    *("UCX_NET_DEVICES", "UCX_IB_GID_INDEX", "NVSHMEM_HCA_LIST"),
    *("UCX_UD_VERBS_ETH_DGID_CHECK", "NVSHMEM_IB_GID_INDEX", "NVSHMEM_IB_ADDR_RANGE"),
    *("NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"),
    *("MC_MS_FILTERS", "MC_GID_INDEX"),
    *("UCCL_IB_GID_INDEX", "UCCL_P2P_RDMA_GID_INDEX", "FI_VERBS_GID_IDX"),
)
NO_GID = ":".join(["0000"] * 8)


@dataclass
class Entry:
    """A GID of a port, with its type and its network interface."""

    gid: str
    type: str | None = "RoCE v2"
    netdev: str | None = "net1"


@dataclass
class PortFiles:
    """The files of one port of a device: its state, rate, and GIDs by their index."""

    gids: dict[str, Entry]
    rate: str | None = "100 Gb/sec (4X EDR)"
    link_layer: str = "Ethernet"
    state: str = "4: ACTIVE"


@dataclass
class Tree:
    """A container's files of sysfs, /proc/net and /dev, for a script that sets NCCL's variables.

    `nets` has each interface's carrier and whether it has a dev_id. `held` are the devices with a
    node in /dev. `default` is the interface of the default route.
    """

    devices: dict[str, dict[str, PortFiles]]
    nets: dict[str, tuple[str | None, bool]] = field(default_factory=lambda: {"net1": ("1", True)})
    own4: tuple[str, ...] = ()
    own6: tuple[tuple[str, str], ...] = ()  # 32 digits, interface
    held: tuple[str, ...] | None = None  # None: all
    default: str | None = None

    def files(self) -> Iterator[tuple[str, str | None]]:
        """Yield path and content of each file, None for a file that does not exist."""
        for name, ports in self.devices.items():
            for number, port in ports.items():
                at = f"sys/class/infiniband/{name}/ports/{number}"
                yield f"{at}/rate", port.rate
                yield f"{at}/link_layer", port.link_layer
                yield f"{at}/state", port.state
                for index, entry in port.gids.items():
                    yield f"{at}/gids/{index}", entry.gid
                    yield f"{at}/gid_attrs/types/{index}", entry.type
                    yield f"{at}/gid_attrs/ndevs/{index}", entry.netdev
        for name, (carrier, has_id) in self.nets.items():
            yield f"sys/class/net/{name}/carrier", carrier
            yield f"sys/class/net/{name}/dev_id", "0x0" if has_id else None
        for place, name in enumerate(self.devices):
            yield f"sys/class/infiniband_verbs/uverbs{place}/ibdev", name
            held = self.held is None or name in self.held
            yield f"dev/infiniband/uverbs{place}", "" if held else None
        yield "proc/net/fib_trie", _trie(self.own4)
        yield (
            "proc/net/if_inet6",
            "\n".join(
                f"{digits} 02 40 {'20' if digits.startswith('fe80') else '00'} 80 {name}"
                for digits, name in self.own6
            ),
        )
        routes = [f"{self.default} 00000000 0100000A 0003"] if self.default else []
        yield "proc/net/route", "\n".join(["Iface Destination Gateway Flags", *routes])

    def write(self, root: Path) -> None:
        """Write the files of the tree below `root`, which stands for /."""
        (root / "sys/class/infiniband").mkdir(parents=True)
        for name, content in self.files():
            if content is not None:
                path = root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(f"{content}\n" if content else "")


def _trie(addresses: Sequence[str]) -> str:
    """Return a /proc/net/fib_trie with these local addresses and a broadcast address."""
    lines = ["Main:", "  +-- 0.0.0.0/0 3 0 5"]
    for address in addresses:
        lines += [f"           |-- {address}", "              /32 host LOCAL"]
    lines += ["           |-- 10.255.255.255", "              /32 link BROADCAST"]
    return "\n".join(lines)


def mapped(address: str) -> str:
    """Return the IPv4-mapped GID of an IPv4 address."""
    a, b, c, d = map(int, address.split("."))
    return f"0000:0000:0000:0000:0000:ffff:{a:02x}{b:02x}:{c:02x}{d:02x}"


def seed_script() -> str | None:
    """Return the bash script that calls export_nccl_env in a text of SEEDS; None without one."""
    for path in SEEDS.glob("*.txt"):
        if match := re.search(
            r"^#!/usr/bin/env bash\n(?:.*\n)*?export_nccl_env\n", path.read_text(), re.MULTILINE
        ):
            return match[0]
    return None


@dataclass(frozen=True)
class Sourced:
    """The result of sourcing a script in a shell: output, exit status and variables."""

    out: str
    code: int
    variables: dict[str, str]


def sourced(shell: str, script: Path, root: Path, **environment: str) -> Sourced:
    """Source a script in a shell; return its output, exit status and the VARIABLES after it.

    NCCL_IB_HCA and NCCL_IB_GID_INDEX are "old" before it, unless `environment` sets them. `root`
    stands for /.
    """
    shown = "".join(f'echo "{name}=${{{name}-}}"\n' for name in VARIABLES)
    text = f". {script}\ncode=$?\necho\necho ---\necho $code\n{shown}"
    words = ("busybox", "sh") if shell == "busybox" else (shell,)
    old = {"NCCL_IB_HCA": "old", "NCCL_IB_GID_INDEX": "old"}
    done = subprocess.run(
        [*words, "-c", text],
        env={"PATH": os.environ["PATH"], "LC_ALL": "C", "NCCL_ENV_ROOT": str(root)}
        | old
        | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    out, _, rest = done.stdout.partition("\n---\n")
    code, *lines = rest.splitlines()
    return Sourced(out, int(code), dict(line.split("=", 1) for line in lines))
