"""Turns bytes of neighbours (kernel, kubelet, API server) into values and back; decides nothing."""
