"""The controller: one copy leads, its parts stand behind walls, its mirrors follow the cluster."""
