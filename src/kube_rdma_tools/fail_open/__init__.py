"""Counts pods that run without the NIC that they asked for: a judge for any driver and cluster.

    pods      a pod of the reader's own, many times, with the check as its program
    check.sh  what runs in each of them: looks from inside at its first moment, writes one line
    judge     pods and Events, as kubectl prints them, to a verdict for each pod and a score

It needs kubectl and nothing of kube-rdma in the cluster. docs/faults.md says how it is used;
bench/fail_open breaks a driver meanwhile.
"""
