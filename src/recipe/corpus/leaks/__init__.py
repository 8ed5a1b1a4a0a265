"""What of a test set a corpus holds, and keeping it out."""
