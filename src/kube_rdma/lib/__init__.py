"""Shared parts of the capabilities: texts with places, definitions, pages, records, mirrors, logs.

Every capability may import it; it imports adapters and model.
"""
