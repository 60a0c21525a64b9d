"""Gives pods their networks: CNI calls in, Steps out, and the repair of what was missed."""
