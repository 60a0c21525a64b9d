"""Describes kinds of objects that several capabilities read or write, with the fields in use.

A kind that only one capability uses stands in that capability's package.
"""
