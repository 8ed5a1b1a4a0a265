"""A video model of the world, from nothing."""
