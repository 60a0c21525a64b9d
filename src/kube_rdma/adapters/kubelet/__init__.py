"""Speaks gRPC with the kubelet (device plugins, claims, pod resources), and reads its files."""
