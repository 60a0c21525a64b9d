"""What slices and claims tell of a node, and what claims ask for: parameters and templates."""
