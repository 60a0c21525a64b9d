"""The kubelet: a real gRPC server that treats plugins as the device manager does."""
