"""Evaluates selectors of devices in CEL: the part of the language that such selectors use."""
