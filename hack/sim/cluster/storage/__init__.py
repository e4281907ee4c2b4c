"""The objects that are stored, with their history, and the lists and watches that read them."""
