"""A registry that gives away what OCI layouts have, for programs that pull.

The part of the distribution specification 1.1 that a pull needs: a manifest by tag or digest, and a
blob by its digest. It takes nothing.
"""

import contextlib
import json
import tarfile
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler

from tests.kit.http_servers import http_server


def content(archives):
    """By path below /v2/REPOSITORY: media type, bytes and digest of all that layouts have."""
    served = {}
    for archive in archives:
        with tarfile.open(archive) as tar:
            files = {one.name: tar.extractfile(one).read() for one in tar if one.isfile()}
        for name, data in files.items():
            if name.startswith("blobs/"):
                digest = name.removeprefix("blobs/").replace("/", ":")
                served[f"blobs/{digest}"] = ("application/octet-stream", data, digest)
        for entry in json.loads(files["index.json"])["manifests"]:
            digest = entry["digest"]
            data = served[f"blobs/{digest}"][1]
            for name in (digest, entry["annotations"]["org.opencontainers.image.ref.name"]):
                served[f"manifests/{name}"] = (entry["mediaType"], data, digest)
    return served


@contextlib.contextmanager
def serve(repository, *archives):
    """The address of a registry that has the archives' content in one repository."""
    served = content(archives)

    class Handler(BaseHTTPRequestHandler):
        """Answers with bytes of the layouts."""

        def do_HEAD(self):
            """Answer as to GET, without the bytes."""
            self.do_GET()

        def do_GET(self):
            """Send an entry; the empty one says that this is a registry."""
            name = self.path.removeprefix("/v2/").removeprefix(f"{repository}/")
            entry = served.get(name, ("application/json", b"{}", "") if not name else None)
            if entry is None:
                self.send_error(HTTPStatus.NOT_FOUND)
                return
            kind, data, digest = entry
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Docker-Content-Digest", digest)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(data)

        def log_message(self, *_):
            """Print nothing."""

    with http_server(Handler) as server:
        yield f"127.0.0.1:{server.server_port}"
