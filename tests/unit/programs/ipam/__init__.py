"""IPAM with its neighbours: a fake API server that fails, a journal that is killed."""
