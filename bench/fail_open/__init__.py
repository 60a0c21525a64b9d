"""The rig of the fail-open score: a driver is broken at each step of an attach, in waves of pods.

    wave: pods are made ─► the first of them reaches the step ─► the driver waits there
      ─► the fault ─► the driver goes on, or another one starts ─► each pod ends with a verdict

    steps           the steps of an attach, and the faults
    stopping_agent  kube-rdma's agent with a place to wait at each step: what runs in the lab
    faults          what is done to a driver on its node, as a script of the node's shell
    installation    kube-rdma in the lab, for shares on one node and for claims on the other
    hook            the floor: a driver that attaches in a hook of the runtime (NRI)
    waves           pods, fault and verdicts of one wave; kube_rdma_tools/fail_open judges

`make fail-open` runs it; docs/faults.md says what it measures.
"""
