"""Role `plugin`: offers the node's pools to the kubelet and answers its calls."""
