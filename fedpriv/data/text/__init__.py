"""Data sets of text: tokens, a public vocabulary, windows of fixed length, and the corpora."""
