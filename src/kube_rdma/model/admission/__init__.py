"""A pod before it runs, and what is known beside it."""
