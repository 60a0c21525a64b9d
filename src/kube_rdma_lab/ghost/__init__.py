"""Ghosts of GPUs: PCI devices of display class that the lab's nodes offer as nvidia.com/gpu."""
