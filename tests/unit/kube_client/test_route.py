"""The way to the server: which address, which name, which proxy."""

import pytest

from kube_base.errors import Refused
from kube_client.kubeconfig import ServerEntry
from kube_client.route import ProxyServer, ServerRoute, find_route

PROXY = {"HTTPS_PROXY": "http://proxy:3128"}


def route(url, environment=None, **entry):
    return find_route(ServerEntry(server=url, **entry), environment or {})


def test_the_parts_of_an_address():
    assert route("https://api.example") == ServerRoute(
        "api.example", 443, tls=True, server_name="api.example"
    )
    assert route("http://[fd00::1]:8080/x/").authority == "[fd00::1]:8080"
    assert route("http://[fd00::1]:8080/x/").prefix == "/x"
    assert route("https://10.0.0.1:6443", tls_server_name="api").server_name == "api"


@pytest.mark.parametrize(
    ("url", "exceptions", "direct"),
    [
        ("https://api.example", "", False),
        ("https://api.example", "other, api.example", True),
        ("https://api.example", "example", True),
        ("https://api.example", ".example", True),
        ("https://api.example", "*.example", True),
        ("https://api.example", "pi.example", False),
        ("https://api.example", "*", True),
        ("https://api.example:6443", "api.example:6443", True),
        ("https://api.example:6443", "api.example:443", False),
        ("https://10.96.0.1", "10.96.0.0/12", True),
        ("https://10.96.0.1", "10.96.0.1", True),
        ("https://10.96.0.1", "10.0.0.0/24,example", False),
        ("https://[fd00::1]:6443", "fd00::/8", True),
        ("https://127.0.0.1:6443", "", True),
        ("https://localhost:6443", "", True),
        ("http://api.example", "", True),
    ],
)
def test_what_the_environment_says_of_proxies(url, exceptions, direct):
    """HTTPS_PROXY is for https alone; NO_PROXY has names, ends of names, addresses and networks."""
    for environment in (
        {**PROXY, "NO_PROXY": exceptions},
        {"https_proxy": "proxy:3128", "no_proxy": exceptions},
    ):
        assert (route(url, environment).proxy is None) == direct


def test_a_kubeconfigs_proxy_comes_first():
    """With its credentials, which are never shown."""
    found = route("https://api.example", {**PROXY, "NO_PROXY": "*"}, proxy_url="https://me:i%3At@p")
    assert found.proxy == ProxyServer(
        "p", 443, tls=True, proof=(("Proxy-Authorization", "Basic bWU6aTp0"),)
    )
    assert "Basic" not in repr(found)


def test_a_proxy_of_socks_has_its_usual_port_and_what_it_asks_for():
    found = route("https://api.example", {"HTTPS_PROXY": "socks5://me:i%3At@p"})
    assert found.proxy == ProxyServer("p", 1080, tls=False, login=("me", "i:t"), socks=True)
    assert "i:t" not in repr(found)


@pytest.mark.parametrize("proxy", ["socks4://proxy:1080", "http://proxy:x", "http://"])
def test_a_proxy_that_cannot_be_used(proxy):
    with pytest.raises(Refused, match="HTTPS_PROXY"):
        route("https://api.example", {"HTTPS_PROXY": proxy})
