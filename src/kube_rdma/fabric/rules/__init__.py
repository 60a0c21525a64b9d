"""Decides what LLDP frames say, which leaves a node is on, and which cable is misplaced."""
