"""Names in the lab: what pods are told leads to CoreDNS, which may read no more than it serves."""

import ipaddress
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from kube_rdma_lab import dns, node_files
from kube_rdma_lab.topology import CONTROL_PLANE_IP, SERVICE_CIDR, find

OBJECTS = {item["kind"]: item for item in json.loads(dns.objects())["items"]}
COREFILE = dns.corefile(Path("/lab/pki/coredns.kubeconfig"))


def test_pods_are_told_the_address_and_the_domain_that_coredns_serves():
    kubelet = node_files.kubelet_configuration(find("two-nodes").nodes[0])
    assert kubelet["clusterDNS"] == [OBJECTS["Service"]["spec"]["clusterIP"]]
    assert COREFILE.startswith(f"{kubelet['clusterDomain']} ")


def test_the_service_leads_to_the_address_that_coredns_listens_on():
    """Its slice bears the Service's name and has its ports; both are in one namespace."""
    service, slice_ = OBJECTS["Service"], OBJECTS["EndpointSlice"]
    assert ipaddress.ip_address(dns.SERVICE_IP) in ipaddress.ip_network(SERVICE_CIDR)
    assert slice_["endpoints"] == [{"addresses": [CONTROL_PLANE_IP]}]
    assert COREFILE.count(f"bind {CONTROL_PLANE_IP}\n") == COREFILE.count("bind ")
    assert slice_["ports"] == service["spec"]["ports"]
    name = slice_["metadata"]["labels"]["kubernetes.io/service-name"]
    assert name == service["metadata"]["name"]
    assert slice_["metadata"]["namespace"] == service["metadata"]["namespace"]


def test_coredns_may_read_what_it_serves_and_nothing_else():
    """No pods, no secrets, no verb that changes anything; bound to its own certificate's name."""
    rules = OBJECTS["ClusterRole"]["rules"]
    resources = {resource for rule in rules for resource in rule["resources"]}
    assert resources == {"namespaces", "services", "endpointslices"}
    assert all(rule["verbs"] == ["list", "watch"] for rule in rules)
    assert [subject["name"] for subject in OBJECTS["ClusterRoleBinding"]["subjects"]] == [dns.USER]


@pytest.mark.parametrize(("status", "ready"), [(200, True), (503, False)])
def test_coredns_is_ready_once_it_says_so(status, ready):
    """It answers 503 while it still reads."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status if self.path == "/ready" else 404)
            self.end_headers()

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        assert dns.ready(server.server_address) is ready


def test_while_nothing_listens_coredns_is_not_ready():
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        address = server.server_address
    assert not dns.ready(address)
