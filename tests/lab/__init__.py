"""What needs the lab: `native/` on native nodes, `machines/` on machines, `emulated/` on QEMU's."""
