"""Visits of a web shop, and a dashboard of them, right at every moment."""
