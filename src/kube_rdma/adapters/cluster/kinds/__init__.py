"""Describes kinds of objects that several capabilities read or write, with the fields in use.

A kind of one capability alone stands in its package.
"""
