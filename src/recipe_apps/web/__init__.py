"""What every HTTP service here shares: refusals in one form, the token, limits of bodies, counters, and a calm end."""
