"""What commands do on a pipeline, wherever it runs: look, write, move, give up."""
