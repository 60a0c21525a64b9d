"""A handler of HTTP requests that is served for a while, in a thread of the test."""

import threading
from contextlib import contextmanager
from http.server import ThreadingHTTPServer


@contextmanager
def http_server(handler):
    """A server on the loopback, at a port of its own (`server_port`)."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
