"""What slices and claims of drivers tell: of the GPUs of a node, and why a claim waits."""
