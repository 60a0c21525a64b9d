"""The kubelet: device plugins, claims and pod resources, by gRPC over its unix sockets."""
