"""What needs the lab: `native/` on native nodes, `machines/` on emulated ones."""
