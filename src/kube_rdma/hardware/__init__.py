"""Surveys the node: devices, interfaces, GPUs and how they lie; watches the kernel for changes.

It imports ipam and pools for nothing but values; attach and what stands above it import it.
"""
