"""Nodes without machines: the real containerd and kubelet in namespaces on this machine's kernel.

    host      whether this machine's kernel can carry any
    node      one node as a program that the supervisor holds
    cgroups   its control groups, the one part of it that does not end with its namespaces
    offers    what its kubelet can give pods now
    trees     sysfs trees, by name or by folder (tree_text: the format of those with a name)
    cards     a tree as the node's /sys, device nodes and interfaces
    changes   what happens to a card, as a change of its tree
    replay    the same on a running node, with the announcements (announce)

What such a node cannot show stands in docs/lab.md, why it is built so in docs/decisions/0004.
"""
