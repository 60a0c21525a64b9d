"""A client of the Kubernetes API server: objects, watches and commands in pods. See README.md.

    connect ─► Http ─┐ wire.Transport
    a fake ──────────┴─► objects.Cluster ─► get, list, watch, apply, … of the caller's kinds

What leaves the package is a frozen value of `kinds`, with what the caller's own codecs made. The
package knows no kind of its own, and nothing of the program that uses it but its name.
"""
