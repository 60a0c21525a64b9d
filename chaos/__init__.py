"""Chaos: faults by a seed under a load of pods, and an audit of what is left of them.

    schedule  what happens in a run: a pure function of its seed
    sites     what a lab of each kind has: native nodes, machines
    setup     kube-rdma and what the pods need, on such a lab
    load      pods made, asked and deleted, by shares and by claims
    traffic   pods that write to each other, where there are verbs
    faults    how each fault begins and ends on the lab
    acts      what a fault is made of; native_acts, machine_acts: what differs with the kind
    seen      what the kernel, the API and the disks show, as a value
    collect   reads that value from the lab, without the product's own readers
    audit     what is leaked, doubled or lost in it: pure rules
    run       a seed from its first pod to its line in runs.jsonl

`make chaos ARGS="--seed 7 --count 10"` runs it; docs/faults.md tells what it means.
"""
