"""The agent, which runs on every node. It has one role today: the kubelet's device plugin."""
