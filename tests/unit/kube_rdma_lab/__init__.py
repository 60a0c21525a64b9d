"""The lab's own code, without a lab."""
