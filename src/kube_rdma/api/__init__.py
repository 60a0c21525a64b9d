"""What people write (configurations, custom resources), typed, with positions, compiled to model values."""
