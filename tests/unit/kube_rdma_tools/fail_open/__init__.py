"""The fail-open score: pods that check themselves, and their judge."""
