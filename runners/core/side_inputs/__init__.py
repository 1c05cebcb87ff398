"""Side inputs: elements that wait for the views of other collections, and follow what becomes of these."""
