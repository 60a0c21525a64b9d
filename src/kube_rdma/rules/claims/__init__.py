"""What slices and claims of other drivers tell of this node."""
