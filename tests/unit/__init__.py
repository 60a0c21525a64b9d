"""One module at a time, on fakes: the folders are those of src."""
