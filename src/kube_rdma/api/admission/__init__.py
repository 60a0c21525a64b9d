"""What is judged before it runs: manifests, pods in them, questions of the API server."""
