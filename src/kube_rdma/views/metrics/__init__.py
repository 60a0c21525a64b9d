"""Families of series and rates of devices, for pages and terminals."""
