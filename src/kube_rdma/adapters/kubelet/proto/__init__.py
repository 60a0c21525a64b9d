"""The kubelet's messages: kube-rdma's .proto files, and the code that tools/protos makes."""
