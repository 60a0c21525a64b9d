"""Parameters of devices in ResourceClaims, their templates and DeviceClasses."""
