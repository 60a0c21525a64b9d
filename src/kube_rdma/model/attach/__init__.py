"""A pod's further networks: what is asked for, the plan, its Steps, what came of them."""
