"""What every room needs: errors, argument checks, random streams, atomic files."""
