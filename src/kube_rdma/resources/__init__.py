"""Lists what the author of a pod can ask for: resources, claims and networks, lines to write.

explain and cli import it.
"""
