"""A pod before it runs, what is wrong with it, and the certificate of the webhook that says so."""
