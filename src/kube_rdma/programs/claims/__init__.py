"""Parameters of claims: what a driver follows, and what is wrong with them in an object."""
