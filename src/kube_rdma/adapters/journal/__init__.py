"""Records of a node on disk: what the agent promised and did, to be known again after a crash."""
