"""The measurement behind docs/claims.md, but for the allocator, which is compiled."""
