"""Figures: named curves, each a list of overrides, over seeds → jobs → CSV, plot, comparison."""
