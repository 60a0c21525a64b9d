"""What should follow: pure decisions, value in, value out. No clock, disk, socket or log."""
