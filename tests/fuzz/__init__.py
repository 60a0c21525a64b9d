"""Random bytes for each reader of foreign bytes: targets, their corpora, what drives them."""
