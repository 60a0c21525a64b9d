"""Devices that ResourceSlices offer and ResourceClaims hold, of any driver."""
