"""The measurement behind docs/boards.md, but for the allocator, which is compiled."""
