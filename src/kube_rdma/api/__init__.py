"""What people write, typed, with positions, compiled to model values: documents in, specs out."""
