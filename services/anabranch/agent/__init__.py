"""A participant's agent: sells and buys load under contracts, and measures what moved."""
