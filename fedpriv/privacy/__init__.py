"""Samplers, mechanisms, events and ledger, accountants, published claims, clippers, noise schedules.

Nothing here imports torch when imported: a dry run plans an experiment without it.
"""
