"""What a NicClusterPolicy wants, and what an upgrade of its drivers is decided on."""
