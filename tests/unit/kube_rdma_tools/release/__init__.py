"""The files of a release, each from small inputs."""
