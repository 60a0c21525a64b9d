"""CNI plugins of others: real programs and fake ones are called alike."""
