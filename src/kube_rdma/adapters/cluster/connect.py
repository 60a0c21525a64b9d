"""The way to a real API server: credentials, TLS and HTTP. The only module that knows lightkube.

lightkube reads kubeconfig files and the service account, asks exec plugins, and takes a rotated
token into use when the old one is no longer accepted. Its models and its generic client stay
unused: they give dicts, swallow the body of a refused watch and know no preconditions of a delete.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import httpx2
import msgspec
import yaml
from lightkube.config.client_adapter import AsyncClient, ConnectionParams
from lightkube.config.kubeconfig import DEFAULT_KUBECONFIG, SERVICE_ACCOUNT, KubeConfig
from lightkube.core.exceptions import ConfigError

from kube_rdma import __version__
from kube_rdma.adapters.cluster.calls import RequestTiming
from kube_rdma.adapters.cluster.objects import Cluster
from kube_rdma.adapters.cluster.wire import Answer, ApiRequest, Stream
from kube_rdma.model.errors import Refused, Unavailable

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 10.0


@asynccontextmanager
async def connect(
    kubeconfig: Path | None = None, *, pace: RequestTiming | None = None
) -> AsyncIterator[Cluster]:
    """Open the door; nothing is asked yet.

    Without a file: the pod's service account, else the file that KUBECONFIG names, else
    ``~/.kube/config``. Raise Refused when the configuration cannot be used.
    """
    with _configuring(str(kubeconfig or "the configuration of the cluster")):
        config = _config(kubeconfig).get()
        assert config, "no current context"
        timeout = httpx2.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS)
        client = AsyncClient(config, ConnectionParams(timeout=timeout))
    client.headers["User-Agent"] = f"kube-rdma/{__version__}"
    async with client:
        yield Cluster(Http(client), pace)


def _config(kubeconfig: Path | None) -> KubeConfig:
    if kubeconfig:
        return KubeConfig.from_file(kubeconfig)
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return KubeConfig.from_service_account(SERVICE_ACCOUNT)
    return KubeConfig.from_file(os.environ.get("KUBECONFIG") or DEFAULT_KUBECONFIG)


@contextmanager
def _configuring(where: str) -> Iterator[None]:
    """Turn what a wrong configuration raises into Refused."""
    try:
        yield
    except (ConfigError, OSError, yaml.YAMLError) as error:
        raise _unusable(str(error), where) from error
    except (
        *(msgspec.MsgspecError, httpx2.InvalidURL, AssertionError),
        *(KeyError, TypeError, ValueError, AttributeError),  # a document of another shape
    ) as error:
        raise _unusable(f"it is not a complete kubeconfig ({error})", where) from error


def _unusable(why: str, where: str) -> Refused:
    return Refused(
        f"cannot use it: {' '.join(why.split())}",
        remedy="Name a kubeconfig with a current context, or give the pod a service account",
        where=where,
    )


class Http:
    """The Transport to a real server."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client = client

    async def send(self, request: ApiRequest) -> Answer:
        """Carry it; raise Unavailable without an answer."""
        with self._asking(request):
            response = await self._client.send(self._build(request))
            return _answer(response)

    @asynccontextmanager
    async def stream(self, request: ApiRequest, seconds: float) -> AsyncIterator[Stream]:
        """Carry a watch; raise Unavailable when it breaks, here or while its lines are read."""
        built = self._build(request, httpx2.Timeout(ANSWER_SECONDS, read=seconds))
        with self._asking(request):
            response = await self._client.send(built, stream=True)
        try:
            if response.is_success:
                yield Stream(self._lines(request, response))
            else:
                with self._asking(request):
                    await response.aread()
                yield Stream(self._lines(request, response), failure=_answer(response))
        finally:
            await response.aclose()

    async def _lines(self, request: ApiRequest, response: httpx2.Response) -> AsyncIterator[bytes]:
        with self._asking(request):
            async for line in response.aiter_lines():
                yield line.encode()

    def _build(self, request: ApiRequest, timeout: httpx2.Timeout | None = None) -> httpx2.Request:
        return self._client.build_request(
            request.method,
            request.path,
            params=dict(request.query),
            content=request.body or None,
            headers={"Content-Type": request.content_type} if request.body else None,
            timeout=timeout or httpx2.USE_CLIENT_DEFAULT,
        )

    @contextmanager
    def _asking(self, request: ApiRequest) -> Iterator[None]:
        try:
            yield
        except (httpx2.HTTPError, httpx2.StreamError, ssl.SSLError, OSError) as error:
            host, why = self._client.base_url.host, str(error) or type(error).__name__
            raise Unavailable(
                f"The API server at {host} does not answer to {request}: {why}."
            ) from error
        except ConfigError as error:
            raise Refused(
                f"there are no credentials for the API server: {error}",
                remedy="Check the kubeconfig, or the service account's token",
            ) from error


def _answer(response: httpx2.Response) -> Answer:
    kind = response.headers.get("Content-Type", "")
    return Answer(response.status_code, response.content, json=kind.startswith("application/json"))
