"""Binds a container's shares to cards when it starts, not when the kubelet allocates."""
