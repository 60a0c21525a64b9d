"""Decisions about cables: values in, values out."""
