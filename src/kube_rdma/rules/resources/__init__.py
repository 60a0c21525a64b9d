"""What the author of a pod can ask for: resources, claims and networks, and the lines to write."""
