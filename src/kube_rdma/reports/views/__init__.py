"""Shows the state of a cluster: its page and the picture of all cards."""
