"""Decides what programs in a container read of its devices: settings of NCCL, UCX."""
