"""A pod's further networks: what the runtime calls for, the plan, its Steps, what came of them."""
