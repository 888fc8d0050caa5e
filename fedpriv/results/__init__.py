"""What a run leaves behind: folder, metrics, ledger file, privacy statement, plots, display."""
