"""`kube-rdma verify` and BandwidthChecks: perftest between pods, pair by pair."""
