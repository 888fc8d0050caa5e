"""Figures of published works: named curves, each a list of overrides, over seeds.

Begin with ``definition``, the parts of a figure; ``reading`` checks the YAML. ``jobs`` expands a figure to
curves × seeds, ``make`` launches the missing runs, ``series`` and ``marks`` compute the drawn values,
``write`` writes CSV and picture, and ``comparison`` compares the results with the publication. ``catalogue``
and ``details`` list figures; ``overlay``, ``final_points`` and ``plot_files`` implement ``fedpriv plot``.
Figures of formulas rather than runs are functions: ``computed`` calls the functions in ``wei``, ``privacy``,
``ftrl`` and ``certified``.
"""
