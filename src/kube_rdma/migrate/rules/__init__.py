"""Decides where a cluster stands between two device plugins, and prints the commands of the way."""
