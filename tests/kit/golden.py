"""Files of what was looked at."""

import os


def assert_golden(file, text):
    """Assert that a file has this text. KUBE_RDMA_WRITE=1 writes it; then look at what changed."""
    if os.environ.get("KUBE_RDMA_WRITE"):
        file.write_text(text, encoding="utf-8")
    assert file.read_text(encoding="utf-8") == text, f"KUBE_RDMA_WRITE=1 writes {file.name}"
