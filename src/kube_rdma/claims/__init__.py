"""Serves ResourceClaims: publishes devices in slices, prepares claims and explains them.

It has the driver of dynamic resource allocation, and judges claims of any driver. It stands on
attach, pools and reports. admission, resources, doctor, explain, verify, the agent and cli may
import it.
"""
