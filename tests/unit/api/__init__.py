"""Documents as people write them: what is read, what is refused and in which words."""
