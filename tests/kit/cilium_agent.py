"""What Cilium's CNI plugin asks Cilium's agent for, on the agent's socket: a stand-in for tests.

    python cilium_agent.py SOCKET HOST_ADDRESS FIRST_ADDRESS

The agent itself loads BPF programs and rules the node's packets; its plugin needs four answers of
it (api/v1/openapi.yaml of Cilium 1.20): the configuration, an address, that an endpoint is there
and that it is gone. All else is refused with 404. Prints a line for each call. Only the standard
library, for it runs as a file of its own in a lab's namespaces.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler
from ipaddress import IPv4Address
from pathlib import Path
from socketserver import ThreadingUnixStreamServer
from threading import Lock
from urllib.parse import urlsplit

MTU = 1450


class Agent(ThreadingUnixStreamServer):
    """Gives addresses one after the other, and never one again."""

    daemon_threads = True

    def __init__(self, socket: Path, host: str, first: str) -> None:
        self._lock = Lock()
        self._next = IPv4Address(first)
        self.addressing = {"ipv4": {"enabled": True, "ip": host}}
        socket.unlink(missing_ok=True)
        super().__init__(str(socket), Requests)

    def address(self) -> str:
        """An address that nobody had before."""
        with self._lock:
            self._next += 1
            return str(self._next - 1)


class Requests(BaseHTTPRequestHandler):
    """One connection of a plugin."""

    protocol_version = "HTTP/1.1"
    server: Agent

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        asked = json.loads(self.rfile.read(length) or b"null")
        path = urlsplit(self.path).path.removeprefix("/v1")
        code, body = self._for(path, asked)
        print(self.command, path, code, flush=True)
        text = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_PUT = do_POST = do_DELETE = _answer  # noqa: N815  names of the library

    def _for(self, path: str, asked: dict | None) -> tuple[int, object]:
        top = path.split("/")[1]
        match self.command, top:
            case "GET", "config":
                status = {
                    "addressing": self.server.addressing,
                    "datapathMode": "veth",
                    "deviceMTU": MTU,
                    "ipam-mode": "cluster-pool",
                    "routeMTU": MTU,
                }
                return 200, {"status": status}
            case "POST", "ipam":
                address = {"ipv4": self.server.address()}
                hosts = self.server.addressing
                return 201, {"address": address, "host-addressing": hosts, "ipv4": {}}
            case "PUT", "endpoint":
                return 201, {"id": 1, "spec": {}, "status": {"state": "ready"}}
            case "DELETE", "endpoint":
                return 200, 0
        return 404, f"{self.command} {path} is not among the answers of this stand-in"

    def address_string(self) -> str:
        """For the log of the library; a socket has no address."""
        return "plugin"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  name of the library
        """Nothing: a line for each call is printed already."""


if __name__ == "__main__":
    Agent(Path(sys.argv[1]), *sys.argv[2:]).serve_forever()
