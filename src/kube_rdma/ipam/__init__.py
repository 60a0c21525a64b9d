"""Gives pods addresses: documents, the journal and the blocks of a node, reports of pools.

Of other capabilities it may import pools alone; attach, hardware, metrics and what stands above
them may import it.
"""
