"""Files that a test puts on a node of the lab, as a package or a person would."""

import base64
import subprocess

from kube_rdma_lab import waiting


def put_text(lab, node, path, text, mode=644):
    """Write a file of a node, in one step."""
    script = f"cat > {path}~ && chmod {mode} {path}~ && mv {path}~ {path}"
    subprocess.run(lab.on_node(node, "sh", "-c", script), input=text, text=True, check=True)


def put_program(lab, node, path, program):
    """Put a program of this machine on a node."""
    script = f"base64 -d > {path}~ && chmod 755 {path}~ && mv {path}~ {path}"
    text = base64.b64encode(program.read_bytes()).decode()
    waiting.run(lab, lab.on_node(node, "sh", "-c", script), stdin=text)
