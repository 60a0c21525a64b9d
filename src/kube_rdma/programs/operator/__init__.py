"""The operator: turns a NicClusterPolicy into DaemonSets and says in its status how far that is."""
