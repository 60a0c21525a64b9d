"""What an installation consists of: one description, printed as manifests or as a Helm chart."""
