"""Reads and creates objects at the lab's API server, with the admin's certificate.

It stands in for kubectl in what the lab does often: kubectl takes longer to start than the API
server takes to answer.
"""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from kube_base.errors import Unavailable

ANSWER_SECONDS = 30.0  # the timeout of one request; callers that wait send another


class ApiClient:
    """A client of one API server; `pki` is the folder with the lab's certificates.

    Its methods raise Unavailable without an answer, and for any error except HTTP 404; `ready`
    never does.
    """

    def __init__(self, pki: Path, server: str) -> None:
        context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
        self._server = server
        self._open = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        ).open

    def ready(self) -> bool:
        """Return whether the API server's /readyz answers with 200."""
        try:
            return self._ask("/readyz") is not None
        except Unavailable:
            return False

    def items(self, path: str) -> list[dict[str, Any]]:
        """Return the objects of the list at a path; none if the cluster has no such kind."""
        answer = self.document(path)
        return [] if answer is None else list(answer["items"])

    def document(self, path: str, form: str = "application/json") -> dict[str, Any] | None:
        """Return the JSON at a path, asked for by media type `form`; None if nothing is there."""
        answer = self._ask(path, form)
        return None if answer is None else dict(json.loads(answer))

    def create(self, path: str, document: dict[str, Any]) -> bool:
        """Create an object; return False for a 404: no such kind or namespace.

        The JSON is sorted as Go's maps are. An API server keeps a RawExtension, such as a claim's
        parameters, byte by byte, so another order is another value.
        """
        body = json.dumps(document, separators=(",", ":"), sort_keys=True).encode()
        return self._ask(path, "application/json", body) is not None

    def _ask(self, path: str, form: str = "*/*", body: bytes | None = None) -> bytes | None:
        """Send a GET, or a POST of `body`, and return the answer; None for 404.

        Raise Unavailable for other errors.
        """
        # The server is the lab's, at an https address.
        headers = {"Accept": form} | ({"Content-Type": form} if body else {})
        request = urllib.request.Request(f"{self._server}{path}", body, headers)  # noqa: S310
        try:
            with self._open(request, timeout=ANSWER_SECONDS) as answer:
                return bytes(answer.read())
        except urllib.error.HTTPError as error:
            if error.code == 404:  # HTTP: not found
                return None
            raise Unavailable(f"the API server answers {path} with {error.code}") from error
        except OSError as error:
            raise Unavailable(f"the API server does not answer {path}: {error}") from error
