"""What programs in a container are told of the RDMA devices that it uses: settings of NCCL, UCX."""
