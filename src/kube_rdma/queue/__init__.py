"""Answers Kueue's admission check kube-rdma.io/rails: are the rails of a job's nodes well?

Kueue asks once a Workload has its quota and, with Topology-Aware Scheduling, its nodes. What cannot
be known is never answered with Ready: the check stays Pending, or the answer is Retry.

Everybody who may create a BandwidthCheck can set a limit that all nodes miss. So a BandwidthCheck
counts only for Workloads of its own namespace; those in kube-rdma's namespace count
for all. The check measures nothing itself: gangs measure once they start (kube_rdma.preflight).

controller and cli may import it.
"""
