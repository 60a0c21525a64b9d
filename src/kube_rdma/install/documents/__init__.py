"""Decodes the values and the objects of an installation as people write them."""
