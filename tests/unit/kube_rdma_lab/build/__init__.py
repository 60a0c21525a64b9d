"""The parts of the lab: whole, deterministic and explained, all checked without the network."""
