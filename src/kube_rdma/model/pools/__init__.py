"""What is offered to the kubelet: pools and their shares, who holds them, who wished for them."""
