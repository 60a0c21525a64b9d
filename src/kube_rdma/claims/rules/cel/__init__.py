"""Evaluates selectors of devices in CEL: the part of the language that slices are selected with."""
