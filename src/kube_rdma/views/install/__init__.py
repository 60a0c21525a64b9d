"""An installation as manifests, as a Helm chart, and its values and kinds as pages."""
