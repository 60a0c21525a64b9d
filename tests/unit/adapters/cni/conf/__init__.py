"""The CNI folders of a host."""
