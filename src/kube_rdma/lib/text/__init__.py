"""Reads texts of people: documents with line and column, their faults, the words in them."""
