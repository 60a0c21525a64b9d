"""How a command under test reaches the API server in memory, in place of cli/options."""

from contextlib import asynccontextmanager

from kube_client.objects import Cluster


def opener_of(server):
    """What a command gets as click's `obj`: each call opens a line of its own."""

    @asynccontextmanager
    async def opener(_):
        yield Cluster(server.line())

    return opener
