"""The kubelet's device plugin API: messages, life cycle, and the fake kubelet itself."""
