"""What is printed: tables and pictures from the leaderboard and the store."""
