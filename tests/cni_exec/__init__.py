"""Tests of adapters/cni_exec."""
