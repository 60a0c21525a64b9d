"""Shows findings of a node, and of all nodes."""
