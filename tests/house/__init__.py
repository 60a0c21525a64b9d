"""The house rules, each as a test with a planted violation that shows it can fail."""
