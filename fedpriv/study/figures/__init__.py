"""Figures of published works and of the user's own: named curves, each a list of overrides, over seeds.

Begin with ``definition``, the parts of a figure; ``reading`` checks the YAML. ``jobs`` expands a figure to
curves × seeds, ``make`` shows or launches the missing runs, ``series`` computes the drawn values, ``write``
writes CSV and picture, and ``comparison`` compares the results with the publication. ``catalogue`` lists
figures. Figures of formulas rather than runs are functions: ``computed`` calls the functions in ``wei``,
``privacy``, ``ftrl`` and ``certified``.
"""
