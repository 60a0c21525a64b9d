"""The agent: role plugin from the configuration to the kubelet, in process and as a process."""
