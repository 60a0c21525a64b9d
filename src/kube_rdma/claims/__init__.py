"""Serves ResourceClaims: publishes devices in slices, prepares claims and explains them.

It has the driver of dynamic resource allocation, and judges claims of any driver. It stands on
attach, install, operator, pools and reports. admission and the packages above it may import it.
"""
