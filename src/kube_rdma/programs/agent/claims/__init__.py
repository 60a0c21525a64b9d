"""What the agent offers to claims: dynamic resource allocation beside the device plugin."""
