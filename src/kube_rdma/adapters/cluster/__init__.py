"""The door to the API server: objects, levels and Events. Nothing else imports its libraries.

    connect ─► HTTP ─┐ Transport
    fake ────────────┴─► objects.Cluster ─► nodes, pods, events, and the caller's own kinds

What leaves the package is a model value, a frozen value of `kinds`, or what the caller's own codec
made. Without access to the API server nobody has to import it.
"""
