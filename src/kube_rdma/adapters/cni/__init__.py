"""Takes the shim's CNI calls, calls the plugins of others, and keeps the CNI configuration."""
