"""Who we speak with: bytes of one neighbour to model values and back. Adapters decide nothing."""
