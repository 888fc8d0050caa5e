"""Figures of published works: named curves, each a list of overrides, over seeds.

Begin with ``definition`` (the YAML of a figure, checked). ``jobs`` makes curves × seeds from it, ``make``
launches what is missing, ``series`` and ``marks`` are what is drawn, ``write`` leaves CSV and picture, and
``comparison`` says what agrees with the publication. ``catalogue`` and ``details`` list figures, ``overlay``
and ``final_points`` are ``fedpriv plot``. Figures of formulas rather than runs are functions: ``computed``
calls those in ``wei``, ``privacy``, ``ftrl`` and ``certified``.
"""
