"""The kubelet: device plugin API v1beta1 over its unix sockets."""
