"""The objectives: where covariances, posteriors and likelihoods meet."""
