"""What several capabilities share: texts with places, definitions, pages, records, mirrors, logs.

Every capability may import it; it imports adapters and model.
"""
