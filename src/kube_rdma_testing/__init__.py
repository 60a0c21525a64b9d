"""Fakes of kube-rdma's neighbours for tests and benchmarks; the product never imports them."""
