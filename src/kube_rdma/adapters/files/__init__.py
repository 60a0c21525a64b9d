"""Files for other programs, or by them: device information, bundles, os-release, neighbours."""
