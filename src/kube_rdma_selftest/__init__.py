"""The hardware self-test: does this node's hardware do what the agent asks of it for pods?

    verify --hardware-selftest ─► command ─► choice: which trials ─► run ─► table, report

A package beside kube_rdma, which it uses as any other package could: the agent's own rules and
adapters, on real cards. kube_rdma knows only the name of its command (cli/verify).
"""
