"""Partials: what crosses the shuffle to a grouping, folded as far as one bundle allows."""
