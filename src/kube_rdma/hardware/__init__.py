"""Surveys the node: devices, interfaces, GPUs and how they lie; watches the kernel for changes.

It imports pools to judge cards and to number rails; attach and what stands above it import it.
"""
