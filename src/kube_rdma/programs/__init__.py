"""What runs: loops that open adapters, call rules and carry values between them."""
