"""Virtual functions: made, removed, given addresses, and bound anew."""
