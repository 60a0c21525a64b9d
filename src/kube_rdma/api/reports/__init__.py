"""What nodes and policies are said to be like: NodeReports, the status of a NodePolicy."""
