"""The CNI configuration and the CNI binaries of the host."""
