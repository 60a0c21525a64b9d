"""A kubeconfig whose proxy-url is a SOCKS5 proxy, as for a cluster behind a bastion host."""

import asyncio

import pytest

from kube_base.errors import Refused, Unavailable
from tests.kit.api_server import TRIAL
from tests.kit.socks import SocksProxy
from tests.unit.kube_client.test_connect import TRUST, Keeping, kubeconfig, serving
from tests.unit.kube_client.trial import connect

NAME = "api.example"
LOGIN = ("me", "i:t")


async def through(folder, proxy, url, secure=False, host=NAME):
    """The object, by a proxy at a URL without its port."""
    server = Keeping(serving(folder, host) if secure else None)
    async with server.running() as port, proxy.running() as at:
        proxy.targets = dict.fromkeys(proxy.targets, port)
        config = kubeconfig(
            folder,
            f"http{'s' if secure else ''}://{host}:6443",
            {"token": "s3cr3t"},
            **(TRUST if secure else {}),
            **{"proxy-url": f"{url}:{at}"},
        )
        async with connect(config) as cluster:
            return await cluster.get(TRIAL, "a")


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("scheme", ["socks5", "socks5h"])
async def test_the_proxy_resolves_the_name_of_the_server(tmp_path, scheme, secure):
    """As with kubectl: the name means nothing on this side of the bastion."""
    proxy = SocksProxy([NAME])
    assert (await through(tmp_path, proxy, f"{scheme}://127.0.0.1", secure)).uid == "u"
    assert proxy.asked == [(NAME, 6443)]


async def test_an_address_is_asked_for_as_one(tmp_path):
    proxy = SocksProxy(["10.9.0.1"])
    assert await through(tmp_path, proxy, "socks5://127.0.0.1", host="10.9.0.1")
    assert proxy.asked == [("10.9.0.1", 6443)]


async def test_a_login_is_shown(tmp_path):
    proxy = SocksProxy([NAME], LOGIN)
    assert await through(tmp_path, proxy, "socks5://me:i%3At@127.0.0.1")


@pytest.mark.parametrize(
    ("login", "url", "why"),
    [
        (LOGIN, "socks5://127.0.0.1", "no method that is accepted"),
        (LOGIN, "socks5://me:other@127.0.0.1", "another login"),
        (None, "socks5://127.0.0.1", "no such host"),
    ],
)
async def test_a_proxy_that_refuses_is_a_sentence(tmp_path, login, url, why):
    proxy = SocksProxy([] if login is None else [NAME], login)
    with pytest.raises(Unavailable, match=r"does not answer to .*: the proxy makes no connection"):
        await through(tmp_path, proxy, url)
    assert proxy.refused == [why]


async def test_a_proxy_that_is_not_there(tmp_path):
    config = kubeconfig(tmp_path, "http://api.example", {}, **{"proxy-url": "socks5://127.0.0.1:1"})
    async with connect(config) as cluster:
        with pytest.raises(Unavailable, match=r"Could not connect to proxy 127\.0\.0\.1:1"):
            await cluster.get(TRIAL, "a")


async def test_another_scheme_is_refused_with_what_is_allowed(tmp_path):
    config = kubeconfig(tmp_path, "http://api.example", {}, **{"proxy-url": "socks4://p:1"})
    with pytest.raises(Refused, match=r"proxy-url that cannot be used.*socks5://HOST:PORT"):
        async with connect(config):
            pass


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"\4\1\0", b"\5\xff"),  # another version
        (b"\5\1\2", b"\5\xff"),  # no method of this side's
        (b"\5\1\0\5\2\0\1", b"\5\0\5\7\0\1" + bytes(6)),  # BIND
        (b"\5\1\0\5\1\0\2", b"\5\0\5\10\0\1" + bytes(6)),  # no kind of address
    ],
)
async def test_the_proxy_of_these_tests_refuses_what_rfc_1928_refuses(sent, answer):
    proxy = SocksProxy([NAME])
    async with proxy.running() as at:
        reader, writer = await asyncio.open_connection("127.0.0.1", at)
        writer.write(sent)
        assert await reader.read() == answer
        writer.close()
