"""Partials: elements on their way through the shuffle to a grouping, folded as far as one bundle allows."""
