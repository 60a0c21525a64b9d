"""Least privilege, verb by verb: what roles grant and what runs of the lab used, compared."""
