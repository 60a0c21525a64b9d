"""Asks the container runtime who it is and whether it knows CDI: the CRI v1 on its socket.

Two calls of the many that the kubelet makes. Whether CDI devices then reach a container is decided
in rules/cdi.
"""

from __future__ import annotations

import json
from pathlib import Path

from google.protobuf.message import DecodeError
from grpclib import GRPCError
from grpclib.client import Channel
from grpclib.exceptions import ProtocolError, StreamTerminatedError

from kube_rdma.adapters.runtime.proto import cri_v1_pb2 as pb
from kube_rdma.adapters.runtime.proto.cri_v1_grpc import RuntimeServiceStub
from kube_rdma.model.errors import Unavailable
from kube_rdma.model.runtime import Runtime

_SECONDS = 10.0


async def read_runtime(socket: Path) -> Runtime:
    """What the runtime on this socket says of itself; raise Unavailable when it says nothing.

    containerd prints its CRI configuration (internal/cri/server/status.go) with cdiSpecDirs and,
    before 2.4, enableCDI. CRI-O prints neither.
    """
    channel = Channel(path=str(socket))
    stub = RuntimeServiceStub(channel)
    try:
        version = await stub.Version(pb.VersionRequest(), timeout=_SECONDS)
        status = await stub.Status(pb.StatusRequest(verbose=True), timeout=_SECONDS)
    except GRPCError as error:
        raise _unavailable(socket, error.message or error.status.name) from error
    except TimeoutError as error:
        raise _unavailable(socket, "no answer in time") from error
    except OSError as error:
        raise _unavailable(socket, error.strerror or str(error)) from error
    except (StreamTerminatedError, ProtocolError) as error:
        raise _unavailable(socket, str(error) or type(error).__name__) from error
    except (DecodeError, AssertionError, NotImplementedError) as error:
        raise _unavailable(socket, "the answer cannot be read") from error
    finally:
        channel.close()
    cdi, dirs = _cdi(status.info.get("config", ""))
    return Runtime(version.runtime_name, version.runtime_version, cdi, dirs)


def _unavailable(socket: Path, reason: str) -> Unavailable:
    return Unavailable(
        f"The container runtime does not answer on {socket} ({reason}); see that it runs and that "
        "the host's folder of this socket is mounted (hostPath)."
    )


def _cdi(config: str) -> tuple[bool | None, tuple[str, ...]]:
    """enableCDI and cdiSpecDirs of a configuration, as far as it has them."""
    try:
        found = json.loads(config)
    except (ValueError, RecursionError):
        return None, ()  # every runtime may print there what it likes
    if not isinstance(found, dict):
        return None, ()
    enabled, dirs = found.get("enableCDI"), found.get("cdiSpecDirs")
    return (
        enabled if isinstance(enabled, bool) else None,
        tuple(d for d in dirs if isinstance(d, str)) if isinstance(dirs, list) else (),
    )
