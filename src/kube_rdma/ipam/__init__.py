"""Gives pods addresses: documents, the journal and the blocks of a node, reports of pools.

It stands on pools alone; attach, hardware, metrics and what stands above them may import it.
"""
