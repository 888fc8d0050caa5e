"""Data sets, their partition over clients, and the federated data a run trains on.

Every module here imports without torch, so that a dry run needs none.
"""
