"""What holds of a real neighbour and of our fake alike: the same tests run on both."""
