"""Operating system: clocks, randomness, Java, downloaded jars, temporary files and the cache."""
