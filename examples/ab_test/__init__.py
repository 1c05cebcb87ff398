"""An A/B test: who saw what, joined with who bought, and whether the difference means something."""
