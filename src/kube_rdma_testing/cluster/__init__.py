"""An API server in memory."""
