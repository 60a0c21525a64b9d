"""Certificates as files have them: made, and read with whatever is wrong in them."""
