"""What programs in a pod are told of their fabric and of where its devices sit."""
