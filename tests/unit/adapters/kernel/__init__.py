"""Tests of adapters/kernel: no root, no RDMA, no network."""
