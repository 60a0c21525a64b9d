"""Reads and writes objects at the API server, kind by kind, through kube_client.

Functions return model values, or frozen values of `kube_client.kinds`. A program without access to
the API server need not import it.
"""
