"""What nodes say of themselves, and a cluster's health as it follows from all of them."""
