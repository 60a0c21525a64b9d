"""Decides where a cluster stands between two device plugins, and writes the commands of the way."""
