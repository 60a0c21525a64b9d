"""The node's own memory on disk: what was promised and what was done, before and after a crash."""
