"""``fedpriv leaderboard``: entries that anyone can run again, and the page that shows them."""
