"""What claims can get of this node's cards, and what those of other drivers tell of it."""
