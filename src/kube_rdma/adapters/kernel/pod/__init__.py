"""What changes a pod's network: Steps run inside its namespace, and what they wait for."""
