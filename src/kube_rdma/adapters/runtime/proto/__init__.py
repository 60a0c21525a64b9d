"""The runtime's messages: kube-rdma's .proto file, and the code that tools/protos makes of it."""
