"""Agent of a participant: sells and buys load under contracts, and meters the movements."""
