"""The lab: a real Kubernetes with real RDMA verbs on one Linux machine without RDMA hardware.

A product of its own beside kube_rdma, which never imports it. Flow: build/ makes the parts once,
supervisor.py boots a topology from them and owns every process until the lab goes down.
"""
