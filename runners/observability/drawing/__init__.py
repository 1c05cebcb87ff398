"""Pictures as SVG: a small writer, the look of light and dark pages, and the panes of a key as the paper draws them."""
