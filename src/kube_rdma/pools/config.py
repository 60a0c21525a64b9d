"""Reads a configuration file or text into a Config without faults.

The agent reads its mounted file with it and `kube-rdma config check` any file, so that a
configuration that passes the check is one that the agent takes.
"""

from __future__ import annotations

from pathlib import Path

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_rdma.lib.text import document, reader
from kube_rdma.lib.text.typed import Config
from kube_rdma.pools.documents import config
from kube_rdma.pools.rules import pools
from kube_rdma.pools.rules.functions import function_faults, range_faults


def read_config(path: Path) -> Config:
    """Return the meaning of a file; raise Refused if it cannot be read, understood or done."""
    try:
        with path.open("rb") as file:
            data = file.read(reader.MAX_BYTES + 1)
    except OSError as error:
        raise document.unreadable(str(path), error) from error
    return parse_config(data, str(path))


def parse_config(data: bytes, source: str) -> Config:
    """Return the meaning of a text; `source` names it in messages. Raise as read_config."""
    return judged(config.parse(data, source))


def judged(configuration: Config) -> Config:
    """Return the configuration with its warnings; raise Refused for specs that cannot be."""
    faults = (
        *pools.faults(configuration.pools),
        *function_faults(configuration.functions),
        *range_faults(configuration.pools, configuration.functions),
    )
    if faults:
        raise Refused.all(faults)
    return replace(
        configuration, warnings=(*configuration.warnings, *pools.warnings(configuration.pools))
    )
