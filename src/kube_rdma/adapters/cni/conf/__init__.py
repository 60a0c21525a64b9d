"""Finds and keeps the CNI configuration and the CNI binaries of the host."""
