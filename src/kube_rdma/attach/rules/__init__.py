"""Decides how a pod gets a network: card, addresses, the plan of Steps, its undo and its result."""
