"""The object BandwidthCheck, its pod and its status."""
