"""The evaluation board: submissions, a queue in a database, scorers with an identity, honest ranks."""
