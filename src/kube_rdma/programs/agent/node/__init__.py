"""What happens on the node: surveys, kernel events, and its object at the API server."""
