"""The dialects in which a node's pools are configured, and the one door for all of them."""
