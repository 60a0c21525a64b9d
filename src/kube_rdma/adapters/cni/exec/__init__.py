"""The CNI plugins of others, in the host's folder of binaries."""
